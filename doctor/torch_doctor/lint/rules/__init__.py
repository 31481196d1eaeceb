"""The lint rules, one file per subject."""
