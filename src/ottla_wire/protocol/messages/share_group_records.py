"""Records of `__consumer_offsets` that share groups write (KIP-932). Key versions 10 to 15 are their kinds."""

from __future__ import annotations

# Name: (versions, first flexible version, fields)
RECORDS: dict[str, tuple[str, str | None, str]] = {
    "ShareGroupMemberMetadataKey": (
        "10",
        None,
        """
        group_id   string
        member_id  string
        """,
    ),
    "ShareGroupMemberMetadataValue": (
        "0",
        "0+",
        """
        rack_id                 string?
        client_id               string
        client_host             string
        subscribed_topic_names  [string]
        """,
    ),
    "ShareGroupMetadataKey": (
        "11",
        None,
        """
        group_id  string
        """,
    ),
    "ShareGroupMetadataValue": (
        "0",
        "0+",
        """
        epoch          int32
        metadata_hash  int64
        """,
    ),
    "ShareGroupTargetAssignmentMetadataKey": (
        "12",
        None,
        """
        group_id  string
        """,
    ),
    "ShareGroupTargetAssignmentMetadataValue": (
        "0",
        "0+",
        """
        assignment_epoch      int32
        assignment_timestamp  int64  @0
        """,
    ),
    "ShareGroupTargetAssignmentMemberKey": (
        "13",
        None,
        """
        group_id   string
        member_id  string
        """,
    ),
    "ShareGroupTargetAssignmentMemberValue": (
        "0",
        "0+",
        """
        topic_partitions  [TopicPartition]
            topic_id      uuid
            partitions    [int32]
        """,
    ),
    "ShareGroupCurrentMemberAssignmentKey": (
        "14",
        None,
        """
        group_id   string
        member_id  string
        """,
    ),
    "ShareGroupCurrentMemberAssignmentValue": (
        "0",
        "0+",
        """
        member_epoch           int32
        previous_member_epoch  int32
        state                  int8
        assigned_partitions    [TopicPartitions]
            topic_id           uuid
            partitions         [int32]
        """,
    ),
    "ShareGroupStatePartitionMetadataKey": (
        "15",
        None,
        """
        group_id  string
        """,
    ),
    "ShareGroupStatePartitionMetadataValue": (
        "0",
        "0+",
        """
        initializing_topics  [TopicPartitionsInfo]
        initialized_topics   [TopicPartitionsInfo]
        deleting_topics      [TopicInfo]
            topic_id         uuid
            topic_name       string
        struct TopicPartitionsInfo
            topic_id    uuid
            topic_name  string
            partitions  [int32]
        """,
    ),
}
