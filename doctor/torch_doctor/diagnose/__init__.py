"""The root cause of a dead run (2xx): the same shape as checks; the facts are a log."""
