"""A cluster with topics, records and groups, and consoles of it."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from console_kit import HOSTILE, Record, Running, Write, running_console

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.browse.record_input import InputRecord
from ottla.browse.writing import RecordWriter
from ottla.cli.shared.cluster_options import cluster_settings
from ottla.config import Settings
from ottla.console.state import ConsoleOptions
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, config={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


@pytest.fixture(scope="session")
def kafka(cluster: EmbeddedCluster) -> Settings:
    return cluster_settings(cluster.bootstrap_servers, {}, environ={})


@pytest.fixture(scope="session")
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers, timeout_s=30) as made:
        yield made


@pytest.fixture(scope="session")
def write(cluster: EmbeddedCluster) -> Iterator[Write]:
    """`write("orders", [(key, value, headers), ...], partition=0)`."""
    with Cluster(connection_settings({"bootstrap.servers": cluster.bootstrap_servers})) as wire:

        def write_records(topic: str, records: list[Record], partition: int | None = None) -> None:
            writer = RecordWriter(wire, topic, acknowledged=lambda *_: None)
            for line, (key, value, headers) in enumerate(records):
                writer.add(InputRecord(line, key, value, headers, partition, None))
            writer.flush()

        yield write_records


@pytest.fixture(scope="session")
def orders(admin: Admin, write: Write) -> str:
    """A topic of three partitions: 300 orders, and hostile ones at the end of partition 0."""
    admin.create_topics({"orders": TopicSpec(partitions=3, replication_factor=3, config={"retention.ms": 86_400_000})})
    write(
        "orders",
        [
            (f"customer-{number % 7}".encode(), json.dumps({"id": number, "total": number * 1.5}).encode(), ())
            for number in range(300)
        ],
    )
    write(
        "orders",
        [
            (HOSTILE.encode(), HOSTILE.encode(), ((HOSTILE, HOSTILE.encode()), ("null", None))),
            (b"\xff\x00", b"\x00\x01\xfe binary", (("raw", b"\xff"),)),
            (b"gone", None, ()),
        ],
        partition=0,
    )
    return "orders"


@pytest.fixture(scope="session")
def billing(admin: Admin, orders: str) -> str:
    """A group that has read nothing of the orders."""
    admin.apply_reset(admin.plan_reset("billing", to="earliest", topics={orders: None}))
    return "billing"


@pytest.fixture(scope="session")
def console(kafka: Settings, orders: str, billing: str, tmp_path_factory: Any) -> Iterator[Running]:
    """One that only reads."""
    folder: Path = tmp_path_factory.mktemp("console")
    with running_console(kafka, ConsoleOptions(folder=folder, every_s=1.0)) as running:
        yield running


@pytest.fixture
def writing(kafka: Settings, orders: str, tmp_path: Path) -> Iterator[Running]:
    """One that may change things; its files are in `tmp_path`."""
    with running_console(kafka, ConsoleOptions(may_write=True, folder=tmp_path, every_s=1.0)) as running:
        yield running


@pytest.fixture
def served(admin: Admin) -> str:
    """A topic of its own for each test: what one writes, no other service handles."""
    topic = f"served-{uuid.uuid4().hex[:8]}"
    wanted = {topic: TopicSpec(partitions=2)}
    if not any(each.name == "served.dead-letters" for each in admin.list_topics()):
        wanted["served.dead-letters"] = TopicSpec(partitions=1)
    admin.create_topics(wanted)
    return topic


@pytest.fixture
def controlled() -> Iterator[tuple[str, str]]:
    """Addresses and control API of `ottla broker start`, in a process of its own."""
    command = [sys.executable, "-m", "ottla", "broker", "start", "--log-level", "error", "--control-port", "0"]
    process = subprocess.Popen([*command, "--brokers", "3", "--virtual-clock"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready, control = process.stdout.readline(), process.stdout.readline()
        yield ready.strip().removeprefix("ready bootstrap="), control.strip().removeprefix("control=")
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium. Not for the session: while it runs, no other test of the process can have an event loop."""
    from console_browser import started  # without Playwright only what needs this is skipped

    with started() as running:
        yield running


@pytest.fixture
def opened(browser: Any) -> Callable[..., Any]:
    """`with opened(console, "/topics") as page`: a tab that has the token. It must say nothing and ask nobody else."""
    from console_browser import tab

    return partial(tab, browser)
