"""A cluster of three brokers for a file's tests, and commands run on it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from click.testing import CliRunner, Result
from command_output import Run

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli import main

_numbers = count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, config={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers, timeout_s=20) as made:
        yield made


@pytest.fixture
def ottla(cluster: EmbeddedCluster, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`ottla("topics", "list")`, in an empty folder, with no clusters file and no terminal."""
    monkeypatch.chdir(tmp_path)
    environment = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": str(tmp_path / "none.toml")}

    def run(*arguments: str, input: str | None = None, **env: str) -> Result:
        return CliRunner().invoke(main, list(arguments), env=environment | env, input=input)

    return run


@pytest.fixture
def topic(admin: Admin) -> str:
    """A topic of three partitions that no other test has."""
    name = f"topic-{next(_numbers)}"
    admin.create_topics({name: TopicSpec(partitions=3, replication_factor=3)})
    return name


@pytest.fixture
def name() -> str:
    """The name of a topic or group that nobody made yet."""
    return f"new-{next(_numbers)}"
