"""What classic group members put into JoinGroup metadata and SyncGroup assignments."""

from __future__ import annotations

# Name: (versions, first flexible version, fields)
RECORDS: dict[str, tuple[str, str | None, str]] = {
    "ConsumerProtocolSubscription": (
        "0-3",
        None,
        """
        topics            [string]
        user_data         bytes?            =null
        owned_partitions  [TopicPartition]  1+
            topic         string
            partitions    [int32]
        generation_id     int32             2+ =-1
        rack_id           string?           3+ =null
        """,
    ),
    "ConsumerProtocolAssignment": (
        "0-3",
        None,
        """
        assigned_partitions  [TopicPartition]
            topic            string
            partitions       [int32]
        user_data            bytes?  =null
        """,
    ),
}
