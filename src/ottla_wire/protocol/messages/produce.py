"""Produce: append record batches to partitions.

Versions 0-2 carried old message formats and are gone since Kafka 4.0. 13 names topics by id (KIP-516); 12 is what
clients send that may add partitions to a transaction implicitly (KIP-890). With acks=0 there is no response.
"""

from __future__ import annotations

VERSIONS = "3-13"
FLEXIBLE = "9+"

REQUEST = """
transactional_id    string?  =null
acks                int16
timeout_ms          int32
topic_data          [TopicProduceData]
    name            string   3-12
    topic_id        uuid     13+
    partition_data  [PartitionProduceData]
        index       int32
        records     records?
"""

RESPONSE = """
responses                              [TopicProduceResponse]
    name                               string                       3-12
    topic_id                           uuid                         13+
    partition_responses                [PartitionProduceResponse]
        index                          int32
        error_code                     int16
        base_offset                    int64
        log_append_time_ms             int64                        =-1
        log_start_offset               int64                        5+ =-1
        record_errors                  [BatchIndexAndErrorMessage]  8+
            batch_index                int32
            batch_index_error_message  string?                      =null
        error_message                  string?                      8+ =null
        current_leader                 LeaderIdAndEpoch             10+ @0
            leader_id                  int32                        =-1
            leader_epoch               int32                        =-1
throttle_time_ms                       int32
node_endpoints                         [NodeEndpoint]               10+ @0
    node_id                            int32
    host                               string
    port                               int32
    rack                               string?                      =null
"""
