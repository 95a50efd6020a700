"""Keeps workload credentials fresh."""

__version__ = "0.1.0"
