"""Commits of a session: the positions, their metadata, and when they are sent."""
