"""Records of `__consumer_offsets` that KIP-848 groups write. A key's version tells its kind: 3 to 8 and 16."""

from __future__ import annotations

# Name: (versions, first flexible version, fields)
RECORDS: dict[str, tuple[str, str | None, str]] = {
    "ConsumerGroupMetadataKey": (
        "3",
        None,
        """
        group_id  string
        """,
    ),
    "ConsumerGroupMetadataValue": (
        "0",
        "0+",
        """
        epoch          int32
        metadata_hash  int64  @0
        """,
    ),
    "ConsumerGroupPartitionMetadataKey": (
        "4",
        None,
        """
        group_id  string
        """,
    ),
    "ConsumerGroupPartitionMetadataValue": (
        "0",
        "0+",
        """
        topics                  [TopicMetadata]
            topic_id            uuid
            topic_name          string
            num_partitions      int32
            partition_metadata  [PartitionMetadata]
                partition       int32
                racks           [string]
        """,
    ),
    "ConsumerGroupMemberMetadataKey": (
        "5",
        None,
        """
        group_id   string
        member_id  string
        """,
    ),
    "ConsumerGroupMemberMetadataValue": (
        "0",
        "0+",
        """
        instance_id              string?
        rack_id                  string?
        client_id                string
        client_host              string
        subscribed_topic_names   [string]
        subscribed_topic_regex   string?
        rebalance_timeout_ms     int32                   =-1
        server_assignor          string?
        classic_member_metadata  ClassicMemberMetadata?  =null @0
            session_timeout_ms   int32
            supported_protocols  [ClassicProtocol]
                name             string
                metadata         bytes
        """,
    ),
    "ConsumerGroupTargetAssignmentMetadataKey": (
        "6",
        None,
        """
        group_id  string
        """,
    ),
    "ConsumerGroupTargetAssignmentMetadataValue": (
        "0",
        "0+",
        """
        assignment_epoch  int32
        """,
    ),
    "ConsumerGroupTargetAssignmentMemberKey": (
        "7",
        None,
        """
        group_id   string
        member_id  string
        """,
    ),
    "ConsumerGroupTargetAssignmentMemberValue": (
        "0",
        "0+",
        """
        topic_partitions  [TopicPartition]
            topic_id      uuid
            partitions    [int32]
        """,
    ),
    "ConsumerGroupCurrentMemberAssignmentKey": (
        "8",
        None,
        """
        group_id   string
        member_id  string
        """,
    ),
    "ConsumerGroupCurrentMemberAssignmentValue": (
        "0",
        "0+",
        """
        member_epoch                   int32
        previous_member_epoch          int32
        state                          int8
        assigned_partitions            [TopicPartitions]
        partitions_pending_revocation  [TopicPartitions]
        struct TopicPartitions
            topic_id    uuid
            partitions  [int32]
        """,
    ),
    "ConsumerGroupRegularExpressionKey": (
        "16",
        None,
        """
        group_id            string
        regular_expression  string
        """,
    ),
    "ConsumerGroupRegularExpressionValue": (
        "0",
        "0+",
        """
        topics     [string]
        version    int64
        timestamp  int64
        """,
    ),
}
