"""Clients where processes fork and end: what is carried over is refused, what is on its way gets a few seconds."""
