"""The causes, one file per subject."""
