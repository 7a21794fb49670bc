"""Partitions as the broker leads them: appends, reads, fetch sessions, who waits for what."""
