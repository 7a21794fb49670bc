"""The scripted broker and settings that reach it."""

from __future__ import annotations

import pytest
from scripted_broker import HangUp, ScriptedBroker


@pytest.fixture
def broker():
    scripted = ScriptedBroker()
    yield scripted
    scripted.close()


@pytest.fixture
def hang_up():
    """The exception with which a script closes the connection."""
    return HangUp


@pytest.fixture
def settings(broker):
    """Settings that reach the scripted broker and do not wait long."""
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "default.api.timeout.ms": 500,
        "delivery.timeout.ms": 500,
        "retry.backoff.ms": 1,
        "request.timeout.ms": 2000,
    }
