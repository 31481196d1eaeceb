"""The only code that touches NVML, /proc, docker, torch or user files.

A module ``probes/x.py`` fills the types of ``facts/x.py``: ``PROBES`` maps each facts type to a function
``(Request) -> facts | ProbeFailure``.
"""
