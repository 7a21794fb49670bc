"""Reads records: what to fetch, what came, and which of it a reader may see."""
