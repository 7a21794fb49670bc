"""RabbitMQ as a peer: what is measured of it is what it does, and nothing of it stays behind."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import messaging
import pytest
import rabbitmq
from results import Results
from servers import Missing

pytestmark = pytest.mark.complete


@pytest.fixture
def port() -> Iterator[int]:
    try:
        with rabbitmq.server() as found:
            yield found
    except Missing as reason:
        pytest.skip(f"RabbitMQ is not there: {reason}")


def test_it_is_measured_by_its_own_means(port: int) -> None:
    waits = rabbitmq.overtaking(port, 3_000, value=b"v", urgent=5, every_s=0, work_s=0)
    assert len(waits) == 5
    assert min(waits) > 0
    _, seen = rabbitmq.draining(port, 300, value=b"v", work_s=0)
    assert sorted(seen) == [0] * 100 + [1] * 100 + [2] * 100
    assert messaging.share_of_bulk(seen) == 0, "the highest first, as long as it has any"
    ages = rabbitmq.expiring(port, 100, ttl_s=0.2, handle_s=0.02)
    assert rabbitmq.PREFETCH <= len(ages) < 100
    assert messaging.too_old(ages) > 0, "what the client has already is not looked at again"


def test_nothing_of_it_stays_when_it_ends_nor_when_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Seen(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[call-overload]
            started.append(self)

    monkeypatch.setattr(rabbitmq.subprocess, "Popen", Seen)
    monkeypatch.setattr(rabbitmq, "_START_S", 0.0)
    with pytest.raises(Missing, match=r"did not start|not installed"), rabbitmq.server():
        raise AssertionError("it is not there yet")
    assert all(process.poll() is not None for process in started)


def test_the_page_says_why_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(messaging, "overtaking", lambda *given: 0.1)
    monkeypatch.setattr(messaging, "draining", lambda *given, **options: (1.0, 0.1))
    monkeypatch.setattr(messaging, "expired", lambda *given: 0)
    results = Results("messaging", None)
    messaging.urgent(results, "localhost:9", records=1, backlog=1, runs=1)
    assert results.part().problems == (
        ("expiry and priorities", rabbitmq.CONTENDER, "pika is not installed (benchmarks/peers.txt)"),
    )
    assert results.part().get(messaging.EXPIRED, "ottla") is not None
