"""The metrics that `ottla exporter` serves. Its reference page, alert rules and dashboard are checked by this table.

Names follow Prometheus' conventions: base units, `_total` for counters, and `_timestamp_seconds` for times.
"""

from __future__ import annotations

from typing import Final, Literal

from ottla_wire.facts import fact


@fact
class ClusterMetric:
    """One metric. `labels` are in the order in which series give their values."""

    name: str
    kind: Literal["gauge", "counter"]
    meaning: str
    labels: tuple[str, ...] = ()
    is_of_partition: bool = False
    """Whether it is served only with `--partitions`."""


def _gauge(name: str, meaning: str, *labels: str, is_of_partition: bool = False) -> ClusterMetric:
    return ClusterMetric(name=name, kind="gauge", meaning=meaning, labels=labels, is_of_partition=is_of_partition)


def _counter(name: str, meaning: str, *labels: str) -> ClusterMetric:
    return ClusterMetric(name=name, kind="counter", meaning=meaning, labels=labels)


_ROWS: Final = (
    _gauge("ottla_cluster_up", "1 if the last read of the cluster succeeded, 0 if no broker answered or let it in."),
    _gauge("ottla_cluster_info", "Always 1; the id of the cluster is a label.", "cluster_id"),
    _gauge("ottla_cluster_has_controller", "1 if the cluster names an active controller."),
    _gauge("ottla_cluster_topics", "Topics that the exporter's user may see, internal ones included."),
    _gauge("ottla_cluster_partitions", "Their partitions."),
    _gauge("ottla_cluster_moving_partitions", "Partitions whose replicas are being reassigned."),
    # Brokers
    _gauge(
        "ottla_cluster_broker_up",
        "1 if the broker answers. 0 if it is fenced, does not answer, or is not registered although replicas name it.",
        "broker",
    ),
    _gauge("ottla_cluster_broker_leaders", "Partitions that the broker leads.", "broker"),
    _gauge("ottla_cluster_broker_replicas", "Replicas that are assigned to the broker.", "broker"),
    _gauge(
        "ottla_cluster_broker_preferred_leaders",
        "Partitions whose preferred leader is the broker.",
        "broker",
    ),
    _gauge(
        "ottla_cluster_broker_connect_seconds",
        "How long a new connection to the broker took at the last read: TCP, TLS and login.",
        "broker",
    ),
    _counter(
        "ottla_cluster_broker_connects_total",
        "New connections that the exporter opened to the broker, one at each read, by result: `ok` or `failed`.",
        "broker",
        "result",
    ),
    _gauge("ottla_cluster_quorum_voters", "Voters of the metadata quorum."),
    _gauge(
        "ottla_cluster_quorum_lag_records",
        "How far a node of the metadata quorum is behind its leader.",
        "node",
        "role",
    ),
    # Disks
    _gauge(
        "ottla_cluster_disk_size_bytes",
        "Size of the disk of a log directory. Directories that share a disk are one series, by the first path.",
        "broker",
        "path",
    ),
    _gauge("ottla_cluster_disk_usable_bytes", "Free bytes of that disk.", "broker", "path"),
    _gauge("ottla_cluster_log_dir_size_bytes", "Bytes of the replicas in a log directory.", "broker", "path"),
    _gauge("ottla_cluster_log_dir_online", "1 if the log directory is online, 0 if it failed.", "broker", "path"),
    # Topics
    _gauge("ottla_cluster_topic_partitions", "Partitions of the topic.", "topic"),
    _gauge("ottla_cluster_topic_replication_factor", "Fewest replicas that a partition of the topic has.", "topic"),
    _gauge("ottla_cluster_topic_offline_partitions", "Partitions without a leader.", "topic"),
    _gauge(
        "ottla_cluster_topic_under_replicated_partitions",
        "Partitions with fewer replicas in sync than assigned.",
        "topic",
    ),
    _gauge(
        "ottla_cluster_topic_under_min_isr_partitions",
        "Partitions with fewer replicas in sync than `min.insync.replicas`: writes with acks=all fail. The setting is"
        " as old as the doctor's last examination.",
        "topic",
    ),
    _gauge("ottla_cluster_topic_size_bytes", "Bytes of all replicas of the topic.", "topic"),
    _gauge("ottla_cluster_topic_records", "Offsets between start and end of the logs of the topic.", "topic"),
    _counter(
        "ottla_cluster_topic_written_records_total", "Offsets written to the topic since the exporter's start.", "topic"
    ),
    _counter(
        "ottla_cluster_topic_truncated_records_total",
        "Offsets that the ends of the topic's logs went back by: records were lost, as after an unclean election.",
        "topic",
    ),
    # Groups
    _gauge("ottla_cluster_group_info", "Always 1; type and state of the group are labels.", "group", "type", "state"),
    _gauge("ottla_cluster_group_members", "Members of the group.", "group"),
    _gauge(
        "ottla_cluster_group_lag_records",
        "Offsets between what the group committed and the end of the logs, over the topic's partitions.",
        "group",
        "topic",
    ),
    _gauge(
        "ottla_cluster_group_lag_seconds",
        "Since when the oldest record of the topic that the group has not committed is in the log. 0 without lag.",
        "group",
        "topic",
    ),
    _gauge(
        "ottla_cluster_group_stalled_seconds",
        "Since when the exporter sees a partition with lag at the same committed offset: the longest of the topic's."
        " 0 without lag.",
        "group",
        "topic",
    ),
    _gauge(
        "ottla_cluster_group_unknown_lag_partitions",
        "Partitions whose lag is not known, because they have no leader or may not be read.",
        "group",
        "topic",
    ),
    _gauge(
        "ottla_cluster_group_beyond_end_partitions",
        "Partitions whose committed offset is beyond the end of the log: it was truncated, or the topic was recreated.",
        "group",
        "topic",
    ),
    _counter(
        "ottla_cluster_group_lost_records_total",
        "Offsets that retention or DeleteRecords took before the group committed them, since the exporter's start.",
        "group",
        "topic",
    ),
    # Partitions
    _gauge(
        "ottla_cluster_partition_leader",
        "Id of the broker that leads the partition; -1 without a leader.",
        "topic",
        "partition",
        is_of_partition=True,
    ),
    _gauge("ottla_cluster_partition_replicas", "Assigned replicas.", "topic", "partition", is_of_partition=True),
    _gauge("ottla_cluster_partition_in_sync_replicas", "Replicas in sync.", "topic", "partition", is_of_partition=True),
    _gauge("ottla_cluster_partition_start_offset", "Log start offset.", "topic", "partition", is_of_partition=True),
    _gauge("ottla_cluster_partition_end_offset", "High watermark.", "topic", "partition", is_of_partition=True),
    _gauge(
        "ottla_cluster_partition_size_bytes",
        "Bytes of the largest replica.",
        "topic",
        "partition",
        is_of_partition=True,
    ),
    _gauge(
        "ottla_cluster_group_partition_lag_records",
        "As ottla_cluster_group_lag_records, of one partition.",
        "group",
        "topic",
        "partition",
        is_of_partition=True,
    ),
    _gauge(
        "ottla_cluster_group_partition_lag_seconds",
        "As ottla_cluster_group_lag_seconds, of one partition.",
        "group",
        "topic",
        "partition",
        is_of_partition=True,
    ),
    # Clients
    _gauge(
        "ottla_cluster_quota",
        "Value of a quota in its own unit. `<default>` is every user, client or address without one of its own, empty"
        " is any. `connection_creation_rate` bounds new connections per second.",
        "user",
        "client_id",
        "ip",
        "quota",
    ),
    _gauge("ottla_cluster_open_transactions", "Transactions that have begun and not ended."),
    _gauge("ottla_cluster_oldest_transaction_seconds", "How long the oldest of them has been open. 0 without one."),
    _gauge("ottla_cluster_overdue_transactions", "Transactions that are open for longer than their timeout."),
    # Doctor
    _gauge(
        "ottla_doctor_findings",
        "What a check of `ottla doctor` finds, by its id and severity; 0 where it finds nothing.",
        "check",
        "severity",
    ),
    _gauge("ottla_doctor_not_checked", "1 if the check, or a part of it, could not be made.", "check"),
    _gauge("ottla_doctor_last_run_timestamp_seconds", "When the doctor last examined the cluster."),
    # Exporter
    _gauge(
        "ottla_exporter_hidden",
        "Brokers, topics, groups or other subjects whose part of the facts could not be read, by reason:"
        " `not authorized`, or `unavailable`.",
        "part",
        "reason",
    ),
    _gauge(
        "ottla_exporter_lag_seconds_at_least_partitions",
        "Partitions of groups whose lag in seconds is only known to be at least what is shown.",
    ),
    _gauge("ottla_exporter_last_read_timestamp_seconds", "When the cluster was last read."),
    _gauge("ottla_exporter_read_seconds", "How long the last read took."),
    _counter("ottla_exporter_reads_total", "Reads of the cluster, by result: `ok` or `failed`.", "result"),
    _gauge("ottla_exporter_series", "Series that are served."),
    _gauge("ottla_exporter_dropped_series", "Series that are left out, because the metric has too many.", "metric"),
    _counter("process_cpu_seconds_total", "CPU time of the exporter."),
    _gauge("process_resident_memory_bytes", "Resident memory of the exporter."),
)

CLUSTER_METRICS: Final[dict[str, ClusterMetric]] = {row.name: row for row in _ROWS}
