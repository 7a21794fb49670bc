"""ConsumerGroupHeartbeat: the one request of the KIP-848 protocol: join, report, learn, leave.

Epoch 0 joins, -1 leaves, -2 leaves for a while (static members). 1 adds subscription by regular expression.
"""

from __future__ import annotations

VERSIONS = "0-1"
FLEXIBLE = "0+"

REQUEST = """
group_id                string
member_id               string
member_epoch            int32
instance_id             string?             =null
rack_id                 string?             =null
rebalance_timeout_ms    int32               =-1
subscribed_topic_names  [string]?           =null
subscribed_topic_regex  string?             1+ =null
server_assignor         string?             =null
topic_partitions        [TopicPartitions]?  =null
    topic_id            uuid
    partitions          [int32]
"""

RESPONSE = """
throttle_time_ms       int32
error_code             int16
error_message          string?      =null
member_id              string?      =null
member_epoch           int32
heartbeat_interval_ms  int32
assignment             Assignment?  =null
    topic_partitions   [TopicPartitions]
struct TopicPartitions
    topic_id    uuid
    partitions  [int32]
"""
