"""Committed offsets: storage, commits, expiry."""
