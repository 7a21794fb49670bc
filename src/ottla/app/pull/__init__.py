"""Consumers that are pulled from instead of calling handlers."""
