"""The command line: app.py and one file per command. Commands parse, call, render, exit."""
