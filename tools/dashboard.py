"""Writes docs/observability/ottla-dashboard.json, a dashboard for Grafana, from the rows below.

    python tools/dashboard.py

A test fails when the file is behind, and when a query names a metric or label that the table does not have.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

FILE = Path(__file__).resolve().parent.parent / "docs" / "observability" / "ottla-dashboard.json"

_G, _T = "messaging_consumer_group_name", "messaging_destination_name"
_PLACE = f"{_G}, {_T}, messaging_destination_partition_id"
_OF = f'{_G}=~"$group"'
_NAME = f"{{{{{_T}}}}}-{{{{messaging_destination_partition_id}}}}"


def _quantile(share: float, metric: str, by: str) -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{{{_OF}}}[$__rate_interval])))"


Row: TypeAlias = tuple[str, str, list[tuple[str, str]], str]
"""Title, unit of Grafana's, [(query, legend)], what to read from it."""

PANELS: list[Row] = [
    (
        "Lag in seconds",
        "s",
        [(f"max by ({_PLACE}) (ottla_consumer_lag_age_seconds{{{_OF}}})", _NAME)],
        "Age of the oldest record that is not done. Measured at the brokers, also while a partition is paused.",
    ),
    (
        "Lag in records",
        "short",
        [(f"max by ({_PLACE}) (ottla_consumer_lag_records{{{_OF}}})", _NAME)],
        "Records up to the end of the log that are not done.",
    ),
    (
        "Stuck: oldest unfinished record",
        "s",
        [(f"max by ({_PLACE}) (ottla_consumer_oldest_unfinished_age_seconds{{{_OF}}})", _NAME)],
        "Since when a handler has it. A line that rises at 45 degrees is a handler that hangs.",
    ),
    (
        "Records by outcome",
        "ops",
        [
            (
                f"sum by (ottla_handler, ottla_outcome) (rate(ottla_handler_records_total{{{_OF}}}[$__rate_interval]))",
                "{{ottla_handler}} {{ottla_outcome}}",
            )
        ],
        "Deliveries per second by what came of them.",
    ),
    (
        "Failures by decision",
        "ops",
        [
            (
                "sum by (ottla_event, ottla_failure_kind, ottla_attempt) "
                f"(rate(ottla_consumer_failures_total{{{_OF}}}[$__rate_interval]))",
                "{{ottla_event}} {{ottla_failure_kind}} #{{ottla_attempt}}",
            )
        ],
        "Retried, postponed, dead-lettered: by kind and delivery.",
    ),
    (
        "Records that cannot be decoded",
        "ops",
        [
            (
                "sum by (ottla_handler, ottla_serde, ottla_failure_kind) "
                f"(rate(ottla_consumer_malformed_total{{{_OF}}}[$__rate_interval]))",
                "{{ottla_handler}} {{ottla_serde}} {{ottla_failure_kind}}",
            )
        ],
        "Malformed: not the serde's format. Invalid: breaks a rule of the type.",
    ),
    (
        "Handler duration",
        "s",
        [
            (_quantile(0.5, "messaging_process_duration_seconds", "ottla_handler"), "p50 {{ottla_handler}}"),
            (_quantile(0.99, "messaging_process_duration_seconds", "ottla_handler"), "p99 {{ottla_handler}}"),
        ],
        "Per record, or per batch of a batch handler.",
    ),
    (
        "End to end",
        "s",
        [(_quantile(0.99, "ottla_consumer_end_to_end_duration_seconds", _T), f"p99 {{{{{_T}}}}}")],
        "From a record's timestamp until it was handled.",
    ),
    (
        "Waiting in the buffer",
        "s",
        [(_quantile(0.99, "ottla_consumer_buffer_duration_seconds", "ottla_handler"), "p99 {{ottla_handler}}")],
        "Time between fetch and handler: high means that handlers are the bottleneck.",
    ),
    (
        "Runs in flight",
        "short",
        [(f"sum by (ottla_handler) (ottla_handler_batches_in_flight{{{_OF}}})", "{{ottla_handler}}")],
        "At its concurrency all the time: the handler is saturated.",
    ),
    (
        "Paused and stopped partitions",
        "short",
        [
            (
                f"sum by (ottla_pause_reason) (ottla_consumer_partitions_paused{{{_OF}}})",
                "paused: {{ottla_pause_reason}}",
            ),
            (f"sum(ottla_consumer_partitions_stopped{{{_OF}}})", "stopped"),
        ],
        "Full is back-pressure at work. Stopped needs somebody.",
    ),
    (
        "Buffered",
        "bytes",
        [(f"sum by ({_T}) (ottla_consumer_buffer_size_bytes{{{_OF}}})", f"{{{{{_T}}}}}")],
        "What is fetched and not done.",
    ),
    (
        "Dead letter budget",
        "short",
        [(f"min by (ottla_handler) (ottla_consumer_dead_letter_budget{{{_OF}}})", "{{ottla_handler}}")],
        "Dead letters that are allowed at once. At 0 records wait.",
    ),
    (
        "Commits",
        "ops",
        [
            (
                f"sum by (error_type) (rate(ottla_consumer_commits_total{{{_OF}}}[$__rate_interval]))",
                "answered {{error_type}}",
            )
        ],
        "Answers of the coordinator; a name is a refusal.",
    ),
    (
        "Rebalances",
        "short",
        [
            (
                "sum by (ottla_rebalance_kind) "
                f"(increase(ottla_consumer_rebalance_duration_seconds_count{{{_OF}}}[$__rate_interval]))",
                "{{ottla_rebalance_kind}}",
            )
        ],
        "A steady rate is a loop.",
    ),
    (
        "Sends",
        "ops",
        [
            (
                f"sum by ({_T}, error_type) (rate(messaging_client_sent_messages_total[$__rate_interval]))",
                f"{{{{{_T}}}}} {{{{error_type}}}}",
            )
        ],
        "Acknowledged, or failed with an error.",
    ),
    (
        "Time to acknowledgement",
        "s",
        [
            (
                "histogram_quantile(0.99, sum by (le, messaging_client_id) (rate("
                'messaging_client_operation_duration_seconds_bucket{messaging_operation_name="send"}[$__rate_interval])))',
                "p99 {{messaging_client_id}}",
            )
        ],
        "Of one record in many.",
    ),
    (
        "Unsettled sends",
        "short",
        [("sum by (messaging_client_id) (ottla_producer_queue)", "{{messaging_client_id}}")],
        "Grows when brokers are slow or away.",
    ),
    (
        "Brokers: round trip",
        "s",
        [
            (
                "max by (messaging_client_id, ottla_broker) (ottla_client_broker_rtt_seconds)",
                "{{messaging_client_id}} to {{ottla_broker}}",
            )
        ],
        "High here, and not in the handlers: it is the broker or the network.",
    ),
    (
        "Held back by quotas",
        "s",
        [
            (
                "sum by (messaging_client_id) (rate(ottla_client_throttle_duration_seconds_sum[$__rate_interval]))",
                "{{messaging_client_id}}",
            )
        ],
        "Seconds per second that brokers make clients wait.",
    ),
]


QUEUE_PANELS: list[Row] = [
    (
        "Queues: leases by outcome",
        "ops",
        [
            (
                f"sum by ({_T}, ottla_outcome) (rate(ottla_queue_jobs_total{{{_OF}}}[$__rate_interval]))",
                f"{{{{{_T}}}}} {{{{ottla_outcome}}}}",
            )
        ],
        "Jobs accepted, released, rejected, or lost to another member.",
    ),
    (
        "Queues: deliveries by number",
        "ops",
        [
            (
                f"sum by ({_T}, ottla_attempt) (rate(ottla_queue_deliveries_total{{{_OF}}}[$__rate_interval]))",
                f"{{{{{_T}}}}} #{{{{ottla_attempt}}}}",
            )
        ],
        "Above #1: released or lost before. At the group's share.delivery.count.limit a job is given up.",
    ),
    (
        "Queues: oldest lease",
        "s",
        [(f"max by ({_G}) (ottla_queue_oldest_lease_age_seconds{{{_OF}}})", f"{{{{{_G}}}}}")],
        "A job that hangs, or a retry that waits.",
    ),
    (
        "Queues: leases in flight",
        "short",
        [(f"sum by ({_G}) (ottla_queue_in_flight{{{_OF}}})", f"{{{{{_G}}}}}")],
        "At share.partition.max.record.locks per partition nothing new is delivered.",
    ),
]
"""Of services with queues: the last rows."""


def render() -> str:
    group = {
        "name": "group",
        "label": "Group",
        "query": f'label_values({{__name__=~"ottla_consumer_partitions|ottla_queue_in_flight"}}, {_G})',
    }
    return dashboard("Ottla", "ottla", [*PANELS, *QUEUE_PANELS], [group])


def dashboard(title: str, uid: str, rows: Sequence[Row], variables: Sequence[Mapping[str, str]]) -> str:
    """The file of a dashboard. A variable has a name, a label and a query; all of its values are chosen at first."""
    document: dict[str, Any] = {
        "title": title,
        "uid": uid,
        "schemaVersion": 39,
        "tags": ["kafka", "ottla"],
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
                *(
                    {
                        "name": variable["name"],
                        "type": "query",
                        "label": variable["label"],
                        "datasource": {"type": "prometheus", "uid": "${datasource}"},
                        "query": variable["query"],
                        "includeAll": True,
                        "multi": True,
                        "refresh": 2,
                        "current": {"text": "All", "value": "$__all"},
                    }
                    for variable in variables
                ),
            ]
        },
        "panels": [_panel(number, *row) for number, row in enumerate(rows)],
    }
    return json.dumps(document, indent=2) + "\n"


def _panel(number: int, title: str, unit: str, queries: list[tuple[str, str]], meaning: str) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "description": meaning,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": 8, "w": 8, "x": 8 * (number % 3), "y": 8 * (number // 3)},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(queries)
        ],
    }


if __name__ == "__main__":
    FILE.write_text(render())
    sys.stdout.write(f"wrote {FILE}\n")
