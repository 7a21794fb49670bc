"""Metadata: brokers, topics, partitions and their leaders.

Topics null asks for all; in version 0 an empty list does. 10+ returns topic ids, 12+ may ask by id, 13 has a
top-level error.
"""

from __future__ import annotations

VERSIONS = "0-13"
FLEXIBLE = "9+"

REQUEST = """
topics                                 [MetadataRequestTopic]  ?1+
    topic_id                           uuid                    10+
    name                               string                  ?10+
allow_auto_topic_creation              bool                    4+ =true
include_cluster_authorized_operations  bool                    8-10
include_topic_authorized_operations    bool                    8+
"""

RESPONSE = """
throttle_time_ms                 int32    3+
brokers                          [MetadataResponseBroker]
    node_id                      int32
    host                         string
    port                         int32
    rack                         string?  1+ =null
cluster_id                       string?  2+ =null
controller_id                    int32    1+ =-1
topics                           [MetadataResponseTopic]
    error_code                   int16
    name                         string   ?12+
    topic_id                     uuid     10+
    is_internal                  bool     1+
    partitions                   [MetadataResponsePartition]
        error_code               int16
        partition_index          int32
        leader_id                int32
        leader_epoch             int32    7+ =-1
        replica_nodes            [int32]
        isr_nodes                [int32]
        offline_replicas         [int32]  5+
    topic_authorized_operations  int32    8+ =-2147483648
cluster_authorized_operations    int32    8-10 =-2147483648
error_code                       int16    13+
"""
