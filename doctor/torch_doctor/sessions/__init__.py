"""Detachable sessions: a supervisor that owns the run, and tmux, screen or nohup as views of it."""
