"""Consequences of a finished run: retries, dead letters, stops."""
