"""What a scheduler beside an app takes of the app's settings."""

from __future__ import annotations

from typing import Any

import pytest

from ottla import App
from ottla.sync.serve import scheduler as module


def test_it_connects_and_is_a_member_as_its_app_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    class Made(module.Scheduler):
        def start(self) -> None:
            made.append({name: self._settings[name] for name in (*wanted, "fetch.min.bytes", "group.id")})
            raise ConnectionRefusedError

    wanted = {
        "session.timeout.ms": 7_000,
        "heartbeat.interval.ms": 700,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    monkeypatch.setattr(module, "Scheduler", Made)
    app = App(
        "g",
        bootstrap_servers="localhost:9092",
        scheduler="billing",
        settings={**wanted, "fetch.min.bytes": 77},
    )
    assert app._parts.scheduler is not None
    with pytest.raises(ConnectionRefusedError):
        app._parts.scheduler.open()
    (found,) = made
    assert {name: found[name] for name in wanted} == wanted
    assert found["group.id"] == "ottla.schedule.billing"
    assert found["fetch.min.bytes"] != 77, "what concerns its records is its own"
