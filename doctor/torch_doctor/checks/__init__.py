"""Environment checks (0xx): pure functions from facts to findings. One file per subject."""
