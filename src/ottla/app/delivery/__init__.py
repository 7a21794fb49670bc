"""Passes records to a handler, and interprets its results."""
