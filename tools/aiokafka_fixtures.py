"""A pytest plugin that gives aiokafka's own tests an embedded broker in the place of their container.

Loaded by client_suites.py into a run of aiokafka's tests (`-p aiokafka_fixtures`), never into ours. It keeps only the
tests that need a broker.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ADDRESS = "OTTLA_SUITE_BOOTSTRAP"
BROKER_TESTS = "KafkaIntegrationTestCase"


class _NotOffered:
    """Kerberos, ACLs, SCRAM users: a test that asks for one fails with what it asked for."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name}: not offered by the embedded broker")


def _server() -> SimpleNamespace:
    host, _, port = os.environ[ADDRESS].split(",")[0].partition(":")
    nowhere = dict.fromkeys(("ssl_port", "sasl_plain_port", "sasl_ssl_port"), 1)
    return SimpleNamespace(host=host, port=int(port), hosts=[f"{host}:{port}"], container=None, **nowhere)


OFFERED: dict[str, Callable[[], Any]] = {
    "docker": lambda: None,
    "kafka_image": lambda: None,
    "ssl_folder": lambda: Path("no-certificates"),
    "kafka_server": _server,
    "acl_manager": _NotOffered,
    "kafka_config": _NotOffered,
    "kerberos_utils": _NotOffered,
}


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Any:
    """Ours instead of theirs, by name; None leaves the others as they are."""
    if fixturedef.argname not in OFFERED:
        return None
    value = OFFERED[fixturedef.argname]()
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value if value is not None else False  # None would ask the next hook; the cached result is what counts


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = [item for item in items if _needs_a_broker(item)]
    config.hook.pytest_deselected(items=[item for item in items if not _needs_a_broker(item)])
    items[:] = kept


def _needs_a_broker(item: pytest.Item) -> bool:
    test_class = getattr(item, "cls", None)
    return test_class is not None and any(base.__name__ == BROKER_TESTS for base in test_class.__mro__)
