"""Who polls the client for delivery reports: a flush is woken by the last one only if no other thread takes it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ottla import Producer
from ottla.sync.produce.reports import ReportService
from ottla.sync.produce.unreported_batches import UnreportedBatch


class Client:
    """A client with nothing to deliver. It remembers how long each poll was ready to wait."""

    def __init__(self) -> None:
        self.polls_s: list[float] = []

    def poll(self, timeout_s: float) -> int:
        self.polls_s.append(timeout_s)
        return 0

    def flush(self, timeout_s: float) -> int:
        return 0


def test_the_background_thread_waits_for_no_report_while_others_flush() -> None:
    client, explain, is_over = Client(), Any, threading.Event()
    reports = ReportService(client, explain=explain, longest_wait_s=1, name="t")
    polls_in_rounds: list[list[float]] = []

    def flush_meanwhile() -> None:
        polls_in_rounds.append(list(client.polls_s))
        client.polls_s.clear()
        reports.flush(0)
        if len(polls_in_rounds) == 5:
            is_over.set()

    reports.on_each_round = flush_meanwhile
    reports.start()
    try:
        assert is_over.wait(60)
    finally:
        reports.stop()
    assert any(polls_in_rounds[0]), "nobody had flushed: it waits for reports"
    assert not any(seconds for polls in polls_in_rounds[1:5] for seconds in polls)


def test_two_threads_that_flush_at_once_settle_a_lot_once() -> None:
    client, explain = Client(), Any
    reports = ReportService(client, explain=explain, longest_wait_s=1, name="t")
    batch = UnreportedBatch("orders", reports)
    reports.add_unreported(batch)
    batch.all_sent(3)
    both_are_in = threading.Barrier(2)

    def flush(_timeout_s: float) -> int:
        both_are_in.wait(60)
        return 0

    client.flush = flush  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(reports.flush, [1.0, 1.0])) == [0, 0]
    assert batch.done()
    assert len(batch._settled) == 3


def test_a_flush_looks_soon_at_first_and_then_seldom(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        asked_s: list[float] = []

        def still_one_out(timeout_s: float) -> int:
            asked_s.append(timeout_s)
            return 0 if len(asked_s) == 12 else 1

        monkeypatch.setattr(producer._reports, "flush", still_one_out)
        producer.flush(60)
        monkeypatch.undo()
    assert asked_s[0] <= 0.001
    assert asked_s == sorted(asked_s)
    assert asked_s[-2] == asked_s[-1] <= 0.2, "Ctrl-C must not wait longer"
