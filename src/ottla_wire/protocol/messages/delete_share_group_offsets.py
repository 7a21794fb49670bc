"""DeleteShareGroupOffsets: forget a share group's offsets for topics (KIP-932)."""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
group_id        string
topics          [DeleteShareGroupOffsetsRequestTopic]
    topic_name  string
"""

RESPONSE = """
throttle_time_ms   int32
error_code         int16
error_message      string?  =null
responses          [DeleteShareGroupOffsetsResponseTopic]
    topic_name     string
    topic_id       uuid
    error_code     int16
    error_message  string?  =null
"""
