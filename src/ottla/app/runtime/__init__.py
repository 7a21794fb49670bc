"""Runs an app: opens and closes its declared parts, and handles signals."""
