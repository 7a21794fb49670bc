"""Records of `__consumer_offsets` that share groups write (KIP-932). Key versions 10 to 15 are their kinds."""

from __future__ import annotations

RECORDS = """
record ShareGroupMemberMetadataKey  10
    group_id   string
    member_id  string

record ShareGroupMemberMetadataValue  0  flexible=0+
    rack_id                 string?
    client_id               string
    client_host             string
    subscribed_topic_names  [string]

record ShareGroupMetadataKey  11
    group_id  string

record ShareGroupMetadataValue  0  flexible=0+
    epoch          int32
    metadata_hash  int64

record ShareGroupTargetAssignmentMetadataKey  12
    group_id  string

record ShareGroupTargetAssignmentMetadataValue  0  flexible=0+
    assignment_epoch      int32
    assignment_timestamp  int64  @0

record ShareGroupTargetAssignmentMemberKey  13
    group_id   string
    member_id  string

record ShareGroupTargetAssignmentMemberValue  0  flexible=0+
    topic_partitions  [TopicPartition]
        topic_id      uuid
        partitions    [int32]

record ShareGroupCurrentMemberAssignmentKey  14
    group_id   string
    member_id  string

record ShareGroupCurrentMemberAssignmentValue  0  flexible=0+
    member_epoch           int32
    previous_member_epoch  int32
    state                  int8
    assigned_partitions    [TopicPartitions]
        topic_id           uuid
        partitions         [int32]

record ShareGroupStatePartitionMetadataKey  15
    group_id  string

record ShareGroupStatePartitionMetadataValue  0  flexible=0+
    initializing_topics  [TopicPartitionsInfo]
    initialized_topics   [TopicPartitionsInfo]
    deleting_topics      [TopicInfo]
        topic_id         uuid
        topic_name       string
    struct TopicPartitionsInfo
        topic_id    uuid
        topic_name  string
        partitions  [int32]
"""
