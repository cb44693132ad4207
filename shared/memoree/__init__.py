"""Memoree: evidence-first memory for AI agents, on object storage."""

__version__ = "0.1.0"
