"""Frozen dataclasses: what was seen, no opinion."""
