"""ShareGroupHeartbeat: membership of a share group (KIP-932).

Version 0 was early access and is gone.
"""

from __future__ import annotations

VERSIONS = "1"
FLEXIBLE = "1+"

REQUEST = """
group_id                string
member_id               string
member_epoch            int32
rack_id                 string?    =null
subscribed_topic_names  [string]?  =null
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
        topic_id       uuid
        partitions     [int32]
"""
