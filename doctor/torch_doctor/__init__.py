"""Preflight, detachable sessions, lint and post-mortem for PyTorch training."""

__version__ = "0.1.0"
