"""One file per API, named after it. Importing this package fills the table of `server.registry`."""

from __future__ import annotations

from importlib import import_module

MODULES = (
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "alter_configs",
    "api_versions",
    "consumer_group_describe",
    "consumer_group_heartbeat",
    "create_partitions",
    "create_topics",
    "delete_groups",
    "delete_records",
    "delete_topics",
    "describe_cluster",
    "describe_configs",
    "describe_groups",
    "describe_log_dirs",
    "describe_producers",
    "describe_topic_partitions",
    "describe_transactions",
    "end_txn",
    "fetch",
    "find_coordinator",
    "get_telemetry_subscriptions",
    "heartbeat",
    "incremental_alter_configs",
    "init_producer_id",
    "join_group",
    "leave_group",
    "list_config_resources",
    "list_groups",
    "list_offsets",
    "list_transactions",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offset_for_leader_epoch",
    "produce",
    "push_telemetry",
    "sync_group",
    "txn_offset_commit",
    "write_txn_markers",
)

for _name in MODULES:
    import_module(f"{__name__}.{_name}")
