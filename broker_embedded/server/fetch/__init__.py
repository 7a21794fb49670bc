"""Fetch requests: which partitions they read, what consumers are answered, and what followers are."""
