"""DeleteTopics: delete topics by name, or by id (6+)."""

from __future__ import annotations

VERSIONS = "1-6"
FLEXIBLE = "4+"

REQUEST = """
topics        [DeleteTopicState]  6+
    name      string?             =null
    topic_id  uuid
topic_names   [string]            1-5
timeout_ms    int32
"""

RESPONSE = """
throttle_time_ms   int32
responses          [DeletableTopicResult]
    name           string   ?6+
    topic_id       uuid     6+
    error_code     int16
    error_message  string?  5+ =null
"""
