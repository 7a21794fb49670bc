"""Bridges of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ottla.bridge import Bridge, BridgeSettings, Rule
from ottla.testing import Kafka


@pytest.fixture
def make_bridge(kafka: Kafka) -> Iterator[Callable[..., Bridge]]:
    with ExitStack() as stack:

        def make(rules: list[Rule], *, servers: str | None = None, **settings: Any) -> Bridge:
            settings.setdefault("listen", ["127.0.0.1:0"])
            made = BridgeSettings(rules=rules, **settings)
            return stack.enter_context(Bridge(servers or kafka.bootstrap_servers, made))

        yield make
