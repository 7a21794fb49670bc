"""Requests of the members of share groups to the leaders of partitions (KIP-932)."""
