"""The share coordinator (KIP-932): keeps the outcome of leases in `__share_group_state`, for the leaders of partitions.

`state` decides what a request changes, `records` are Kafka's formats, `shard` has the states of one partition of the
topic, and `coordinator` finds the shard.
"""
