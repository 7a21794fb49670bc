"""Partitions on disk, in Kafka's own files: segments, indexes, producer state, retention, compaction, recovery."""
