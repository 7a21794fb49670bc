"""Small value types that every layer of the broker shares."""

from __future__ import annotations

from ottla_wire.partitions import TopicPartition as TopicPartition

NO_LEADER = -1
NO_EPOCH = -1
NO_OFFSET = -1

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})
"""Topics that clients see flagged `is_internal`, and that no client may produce to or create by hand."""
