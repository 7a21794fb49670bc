"""Writes docs/observability/ottla-cluster-dashboard.json, a dashboard of what `ottla exporter` serves.

    python tools/cluster_dashboard.py

A test fails when the file is behind, and when a query names a metric or label that the exporter does not have.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dashboard import Row, dashboard

FILE = Path(__file__).resolve().parent.parent / "docs" / "observability" / "ottla-cluster-dashboard.json"

_AT = 'instance=~"$instance"'
_OF = f'{_AT}, group=~"$group"'
_IN = f'{_AT}, topic=~"$topic"'


def _most(query: str) -> str:
    return f"topk(10, {query})"


def _added(by: str, metric: str, chosen: str) -> str:
    return f"sum by ({by}) (increase({metric}{{{chosen}}}[$__rate_interval])) > 0"


PANELS: list[Row] = [
    (
        "Brokers",
        "short",
        [
            (f"sum(ottla_cluster_broker_up{{{_AT}}})", "up"),
            (f"count(ottla_cluster_broker_up{{{_AT}}})", "known"),
        ],
        "Brokers that answer, of those that are registered or hold replicas.",
    ),
    (
        "Partitions in trouble",
        "short",
        [
            (f"sum(ottla_cluster_topic_offline_partitions{{{_IN}}})", "without a leader"),
            (f"sum(ottla_cluster_topic_under_min_isr_partitions{{{_IN}}})", "below min.insync.replicas"),
            (f"sum(ottla_cluster_topic_under_replicated_partitions{{{_IN}}})", "under-replicated"),
        ],
        "Without a leader nothing is read or written. Below min.insync.replicas writes with acks=all fail.",
    ),
    (
        "Findings of the doctor",
        "short",
        [(f"ottla_doctor_findings{{{_AT}}} > 0", "{{check}} {{severity}}")],
        "ottla doctor --explain ID says what each means.",
    ),
    (
        "Lag in seconds",
        "s",
        [(_most(f"max by (group, topic) (ottla_cluster_group_lag_seconds{{{_OF}}})"), "{{group}} {{topic}}")],
        "Age of the oldest record that is not committed: the ten groups that are furthest behind.",
    ),
    (
        "Lag in records",
        "short",
        [(_most(f"sum by (group, topic) (ottla_cluster_group_lag_records{{{_OF}}})"), "{{group}} {{topic}}")],
        "Offsets up to the end of the log.",
    ),
    (
        "Groups that stand still",
        "s",
        [(_most(f"max by (group, topic) (ottla_cluster_group_stalled_seconds{{{_OF}}}) > 60"), "{{group}} {{topic}}")],
        "Since when a partition has lag and no commit came.",
    ),
    (
        "Records that are gone",
        "short",
        [
            (
                _added("group, topic", "ottla_cluster_group_lost_records_total", _OF),
                "unread by {{group}}: {{topic}}",
            ),
            (_added("topic", "ottla_cluster_topic_truncated_records_total", _IN), "truncated: {{topic}}"),
        ],
        "Deleted before a group had read them, or cut from the end of a log. Anything here is lost data.",
    ),
    (
        "Groups by state",
        "short",
        [(f"count by (state) (ottla_cluster_group_info{{{_OF}}})", "{{state}}")],
        "Many in a rebalance at once: their coordinator moved, or a deploy runs.",
    ),
    (
        "Members of groups",
        "short",
        [(_most(f"max by (group) (ottla_cluster_group_members{{{_OF}}})"), "{{group}}")],
        "A number that jumps is a group that rebalances.",
    ),
    (
        "Records written",
        "ops",
        [
            (
                _most(f"sum by (topic) (rate(ottla_cluster_topic_written_records_total{{{_IN}}}[$__rate_interval]))"),
                "{{topic}}",
            )
        ],
        "Offsets per second: the ten busiest topics.",
    ),
    (
        "Size of topics",
        "bytes",
        [(_most(f"sum by (topic) (ottla_cluster_topic_size_bytes{{{_IN}}})"), "{{topic}}")],
        "Bytes of all replicas: the ten largest topics.",
    ),
    (
        "Disks",
        "percentunit",
        [
            (
                f"1 - ottla_cluster_disk_usable_bytes{{{_AT}}} / ottla_cluster_disk_size_bytes{{{_AT}}}",
                "{{broker}} {{path}}",
            )
        ],
        "Used share of each disk, by whatever uses it.",
    ),
    (
        "Bytes by broker",
        "bytes",
        [(f"sum by (broker) (ottla_cluster_log_dir_size_bytes{{{_AT}}})", "{{broker}}")],
        "Apart from each other: ottla plan rebalance.",
    ),
    (
        "Leaders by broker",
        "short",
        [(f"sum by (broker) (ottla_cluster_broker_leaders{{{_AT}}})", "{{broker}}")],
        "After a restart a broker leads nothing until preferred leaders are elected.",
    ),
    (
        "Time to connect",
        "s",
        [(f"max by (broker) (ottla_cluster_broker_connect_seconds{{{_AT}}})", "{{broker}}")],
        "A new connection: TCP, TLS, login. High: the network, or a broker whose network threads are busy.",
    ),
    (
        "Connect rate (JMX exporter)",
        "cps",
        [
            (
                "sum by (instance, listener) (kafka_server_socket_server_metrics_connection_accept_rate)",
                "{{instance}} {{listener}}",
            )
        ],
        "New connections per second by broker and listener. From Prometheus' JMX exporter in the brokers; empty without"
        " it, because no API of Kafka's protocol returns it.",
    ),
    (
        "Transactions",
        "short",
        [
            (f"sum(ottla_cluster_open_transactions{{{_AT}}})", "open"),
            (f"sum(ottla_cluster_overdue_transactions{{{_AT}}})", "longer than their timeout"),
        ],
        "One that stays open holds back read_committed consumers of its partitions.",
    ),
    (
        "Reassignments",
        "short",
        [(f"sum(ottla_cluster_moving_partitions{{{_AT}}})", "partitions that move")],
        "ottla plan status shows how far they are.",
    ),
    (
        "Exporter",
        "short",
        [
            (f"max(ottla_exporter_read_seconds{{{_AT}}})", "seconds of a read"),
            (f"sum by (part, reason) (ottla_exporter_hidden{{{_AT}}}) > 0", "hidden: {{part}} {{reason}}"),
        ],
        "What the exporter cannot read is not in the other panels.",
    ),
]


def render() -> str:
    variables = [
        {"name": "instance", "label": "Cluster", "query": "label_values(ottla_cluster_up, instance)"},
        {"name": "group", "label": "Group", "query": "label_values(ottla_cluster_group_info, group)"},
        {"name": "topic", "label": "Topic", "query": "label_values(ottla_cluster_topic_partitions, topic)"},
    ]
    return dashboard("Ottla: cluster", "ottla-cluster", PANELS, variables)


if __name__ == "__main__":
    FILE.write_text(render())
    sys.stdout.write(f"wrote {FILE}\n")
