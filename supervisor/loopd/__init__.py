"""A supervisor for coding agents: done is decided by evidence, never by words."""

__version__ = "0.1.0"
