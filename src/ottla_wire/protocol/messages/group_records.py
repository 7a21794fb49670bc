"""Records of `__consumer_offsets` that KIP-848 groups write. A key's version tells its kind: 3 to 8 and 16."""

from __future__ import annotations

RECORDS = """
record ConsumerGroupMetadataKey  3
    group_id  string

record ConsumerGroupMetadataValue  0  flexible=0+
    epoch          int32
    metadata_hash  int64  @0

record ConsumerGroupPartitionMetadataKey  4
    group_id  string

record ConsumerGroupPartitionMetadataValue  0  flexible=0+
    topics                  [TopicMetadata]
        topic_id            uuid
        topic_name          string
        num_partitions      int32
        partition_metadata  [PartitionMetadata]
            partition       int32
            racks           [string]

record ConsumerGroupMemberMetadataKey  5
    group_id   string
    member_id  string

record ConsumerGroupMemberMetadataValue  0  flexible=0+
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

record ConsumerGroupTargetAssignmentMetadataKey  6
    group_id  string

record ConsumerGroupTargetAssignmentMetadataValue  0  flexible=0+
    assignment_epoch  int32

record ConsumerGroupTargetAssignmentMemberKey  7
    group_id   string
    member_id  string

record ConsumerGroupTargetAssignmentMemberValue  0  flexible=0+
    topic_partitions  [TopicPartition]
        topic_id      uuid
        partitions    [int32]

record ConsumerGroupCurrentMemberAssignmentKey  8
    group_id   string
    member_id  string

record ConsumerGroupCurrentMemberAssignmentValue  0  flexible=0+
    member_epoch                   int32
    previous_member_epoch          int32
    state                          int8
    assigned_partitions            [TopicPartitions]
    partitions_pending_revocation  [TopicPartitions]
    struct TopicPartitions
        topic_id    uuid
        partitions  [int32]

record ConsumerGroupRegularExpressionKey  16
    group_id            string
    regular_expression  string

record ConsumerGroupRegularExpressionValue  0  flexible=0+
    topics     [string]
    version    int64
    timestamp  int64
"""
