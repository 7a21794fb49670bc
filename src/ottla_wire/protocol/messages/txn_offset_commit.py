"""TxnOffsetCommit: commit offsets inside a transaction.

3+ carries the member, so that a zombie is fenced (KIP-447), 6+ names topics by id.
"""

from __future__ import annotations

VERSIONS = "0-6"
FLEXIBLE = "3+"

REQUEST = """
transactional_id                string
group_id                        string
producer_id                     int64
producer_epoch                  int16
generation_id                   int32    3+ =-1
member_id                       string   3+
group_instance_id               string?  3+ =null
topics                          [TxnOffsetCommitRequestTopic]
    name                        string   0-5
    topic_id                    uuid     6+
    partitions                  [TxnOffsetCommitRequestPartition]
        partition_index         int32
        committed_offset        int64
        committed_leader_epoch  int32    2+ =-1
        committed_metadata      string?
"""

RESPONSE = """
throttle_time_ms         int32
topics                   [TxnOffsetCommitResponseTopic]
    name                 string  0-5
    topic_id             uuid    6+
    partitions           [TxnOffsetCommitResponsePartition]
        partition_index  int32
        error_code       int16
"""
