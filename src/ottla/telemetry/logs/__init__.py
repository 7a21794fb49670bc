"""Structured events: the table of them, and where they are written."""
