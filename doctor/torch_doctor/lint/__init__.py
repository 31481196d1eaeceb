"""Pitfalls in code (1xx): the same shape as checks; the facts are a parsed script."""
