"""Fetch requests: their partitions, and responses to consumers and followers."""
