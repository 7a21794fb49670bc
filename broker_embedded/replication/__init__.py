"""Partitions on their leader and followers: appends, reads, fetch sessions, waiting requests."""
