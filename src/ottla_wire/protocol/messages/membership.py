"""What classic group members put into JoinGroup metadata and SyncGroup assignments."""

from __future__ import annotations

RECORDS = """
record ConsumerProtocolSubscription  0-3
    topics            [string]
    user_data         bytes?            =null
    owned_partitions  [TopicPartition]  1+
        topic         string
        partitions    [int32]
    generation_id     int32             2+ =-1
    rack_id           string?           3+ =null

record ConsumerProtocolAssignment  0-3
    assigned_partitions  [TopicPartition]
        topic            string
        partitions       [int32]
    user_data            bytes?  =null
"""
