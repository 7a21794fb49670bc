"""Old names of renamed events and metrics: searches, rules and hooks for them work for one release more."""

from __future__ import annotations

import logging

import pytest
from metric_values import collected_metrics

from ottla.telemetry import Counters, log_event
from ottla.telemetry.logs.log_events import EVENTS
from ottla.telemetry.metrics.member_metrics import MemberMetrics
from ottla.telemetry.metrics.metrics_table import METRICS

LOST = {"partition": "orders-0", "from": 3, "to": 9, "why": "retention"}


def test_a_line_of_a_renamed_event_has_its_old_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_event("records_lost_before_read", "error", {"group": "g", **LOST})
        log_event("topic_created", "info", {"topic": "orders"})

    lost, created = [str(record.msg) + str(vars(record)) for record in caplog.records]
    assert "records_lost_before_read" in lost
    assert "'event_before': 'records_skipped'" in lost
    assert "event_before" not in created


def test_a_renamed_event_is_counted_under_both_names() -> None:
    counters = Counters()

    MemberMetrics(counters, group="g", client="c", now_ms=0).noticed("records_lost_before_read", LOST)

    assert counters["records_lost_before_read"] == 1
    assert counters["records_skipped"] == 1


def test_a_decision_about_a_failed_record_is_counted_once() -> None:
    with collected_metrics() as metrics:
        fields = {"partition": "orders-0", "kind": "failed", "attempts": 1}
        MemberMetrics(None, group="g", client="c", now_ms=0).noticed("record_sent_to_retry_topic", fields)

        assert metrics.value("ottla.consumer.failures", ottla__event="record_sent_to_retry_topic") == 1
        assert metrics.value("ottla.consumer.failures", ottla__event="record_postponed") is None


@pytest.mark.parametrize("name", ["ottla.handler.batches", "ottla.handler.runs"])
def test_a_renamed_counter_has_its_values_under_both_names(name: str) -> None:
    with collected_metrics() as metrics:
        run = {"handled": 3, "failed": 0, "malformed": 0, "skipped": 0, "duration_ms": 1}
        MemberMetrics(None, group="g", client="c", now_ms=0).hooks.run_finished(
            group="g", handler="h", topic="t", **run
        )

        assert metrics.value(name) == 1


def test_an_old_name_names_nothing_else() -> None:
    events = [row.before for row in EVENTS.values() if row.before]
    metrics = [row.before for row in METRICS.values() if row.before]

    assert not {*events} & EVENTS.keys()
    assert not {*metrics} & METRICS.keys()
    assert len({*events, *metrics}) == len(events) + len(metrics)
