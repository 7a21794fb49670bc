"""StreamsGroupDescribe: state, topology and members of Kafka Streams groups (KIP-1071)."""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
group_ids                      [string]
include_authorized_operations  bool
"""

RESPONSE = """
throttle_time_ms                       int32
groups                                 [DescribedGroup]
    error_code                         int16
    error_message                      string?         =null
    group_id                           string
    group_state                        string
    group_epoch                        int32
    assignment_epoch                   int32
    topology                           Topology?       =null
        epoch                          int32
        subtopologies                  [Subtopology]?  =null
            subtopology_id             string
            source_topics              [string]
            repartition_sink_topics    [string]
            state_changelog_topics     [TopicInfo]
            repartition_source_topics  [TopicInfo]
    members                            [Member]
        member_id                      string
        member_epoch                   int32
        instance_id                    string?         =null
        rack_id                        string?         =null
        client_id                      string
        client_host                    string
        topology_epoch                 int32
        process_id                     string
        user_endpoint                  Endpoint?       =null
            host                       string
            port                       uint16
        client_tags                    [KeyValue]
        task_offsets                   [TaskOffset]
        task_end_offsets               [TaskOffset]
        assignment                     Assignment
        target_assignment              Assignment
        is_classic                     bool
    authorized_operations              int32           =-2147483648
struct TopicInfo
    name                string
    partitions          int32
    replication_factor  int16
    topic_configs       [KeyValue]
struct KeyValue
    key    string
    value  string
struct TaskOffset
    subtopology_id  string
    partition       int32
    offset          int64
struct Assignment
    active_tasks   [TaskIds]
    standby_tasks  [TaskIds]
    warmup_tasks   [TaskIds]
struct TaskIds
    subtopology_id  string
    partitions      [int32]
"""
