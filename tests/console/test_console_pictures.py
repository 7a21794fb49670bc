"""The pictures of the documentation: a cluster with something to see. `PICTURES=folder tools/run browser` keeps them in
`folder/docs`; without it this is a walk through the pages as the how-to shows them."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from console_browser import PATIENCE_MS, Opened, expect, shows
from console_kit import running_console

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.browse.record_input import InputRecord
from ottla.browse.writing import RecordWriter
from ottla.cli.shared.cluster_options import cluster_settings
from ottla.console.state import ConsoleOptions
from ottla.failures.dead_letter import DeadLetterReason, DeadLetterRecord, build_dead_letter
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import Cluster

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
FOLDER = os.environ.get("OTTLA_CONSOLE_PICTURES")
CAUSES = [("failed", "ConnectionError", "payments.internal:443 does not answer")] * 7
CAUSES += [("malformed", "JSONDecodeError", "Expecting value: line 1 column 1")]
DESK, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 850}


class Lively(NamedTuple):
    """A cluster on which something happens."""

    servers: str
    folder: Path


@pytest.fixture
def lively(tmp_path: Path) -> Iterator[Lively]:
    """Orders that come in all the time, a group that falls behind, dead letters of two causes."""
    with EmbeddedCluster(brokers=4, racks=("a", "b", "c", "c")) as cluster, Admin(cluster.bootstrap_servers) as admin:
        config = {"retention.ms": 86_400_000, "retention.bytes": 1 << 30}
        admin.create_topics(
            {name: TopicSpec(partitions=6, replication_factor=3, config=config) for name in ("orders", "payments")}
        )
        admin.create_topics({"orders.dead-letters": TopicSpec(partitions=1, replication_factor=3)})
        with Cluster(connection_settings({"bootstrap.servers": cluster.bootstrap_servers})) as wire:
            writer = RecordWriter(wire, "orders.dead-letters", acknowledged=lambda *_: None)
            for number in range(190):
                letter = letter_of(number, at_ms=time.time_ns() // 1_000_000 - (190 - number) * 1_000)
                writer.add(InputRecord(number, letter.key, letter.value, tuple(letter.headers), None, None))
            writer.flush()
        with orders_coming_in(cluster.bootstrap_servers):
            admin.apply_reset(admin.plan_reset("billing", to="latest", topics={"orders": None}))
            yield Lively(cluster.bootstrap_servers, tmp_path)


def letter_of(number: int, *, at_ms: int) -> DeadLetterRecord:
    """A letter of one of the causes."""
    kind, error, message = CAUSES[number % len(CAUSES)]
    reason = DeadLetterReason(
        kind=kind, error_type=error, message=message, attempts=3, group="billing", dead_lettered_ms=at_ms
    )
    return build_dead_letter(
        topic="orders",
        partition=number % 6,
        offset=number,
        timestamp_ms=at_ms,
        key=b"customer-3",
        value=json.dumps({"id": number}).encode(),
        headers=[],
        reason=reason,
    )


@contextmanager
def orders_coming_in(servers: str) -> Iterator[None]:
    """Some hundred a second, until this ends."""
    ended, begun = threading.Event(), threading.Event()

    def write() -> None:
        with Cluster(connection_settings({"bootstrap.servers": servers})) as wire:
            writer = RecordWriter(wire, "orders", acknowledged=lambda *_: None)
            number = 0
            while not ended.wait(0.05):
                for _ in range(20):
                    value = json.dumps({"id": number, "total": number * 1.5, "currency": "EUR"}).encode()
                    writer.add(
                        InputRecord(number, b"customer-%d" % (number % 9), value, (("source", b"web"),), None, None)
                    )
                    number += 1
                writer.flush()
                begun.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        ended.set()
        thread.join(60)


@pytest.fixture
def pictured(lively: Lively, opened: Opened) -> Iterator[Callable[..., Any]]:
    """`with pictured("topic", "/topic?name=orders", view, scheme) as page`: at its end the picture is taken."""
    kafka = cluster_settings(lively.servers, {}, environ={})
    choices = ConsoleOptions(may_write=True, folder=lively.folder, every_s=1.0, name="shop")
    with running_console(kafka, choices) as console:

        @contextmanager
        def open_page(name: str, path: str, view: dict[str, int], scheme: str = "light") -> Iterator[Any]:
            with opened(console, path, viewport=view, color_scheme=scheme) as page:
                yield page
                if FOLDER:
                    folder = Path(FOLDER, "docs")
                    folder.mkdir(parents=True, exist_ok=True)
                    page.screenshot(path=folder / f"console-{name}.png")

        yield open_page


def is_drawn(page: Any, title: str) -> None:
    """Wait until a plot has some points."""
    line = page.get_by_role("img", name=title).first.locator("polyline")
    expect(line).to_have_attribute("points", re.compile(r"^(\S+ ){2,}\S+$"), timeout=PATIENCE_MS)


def test_the_pages_as_the_how_to_shows_them(pictured: Callable[..., Any]) -> None:
    with pictured("topic", "/topic?name=orders", DESK, "dark") as page:
        shows(page, re.compile(r"KiB/s"))
        is_drawn(page, "bytes written per second")
        page.locator("button.record").first.click()
        shows(page, '"currency": "EUR"')
    with pictured("letters", "/letters/topic?name=orders.dead-letters", DESK) as page:
        shows(page, "190 letters")
        page.get_by_role("button", name="Dry run").click()
        page.get_by_role("button", name="Redrive 190").hover()
    with pictured("moves", "/moves", DESK) as page:
        page.get_by_label("What").select_option("remove-brokers")
        page.get_by_label("Brokers", exact=True).fill("4")
        page.get_by_role("button", name="Plan", exact=True).click()
        expect(page.get_by_role("table", name="Brokers before and after")).to_be_visible(timeout=PATIENCE_MS)
    with pictured("group-phone", "/group?name=billing", PHONE) as page:
        is_drawn(page, "Lag in records")
        page.get_by_role("heading", name="billing").hover()
    with pictured("cluster-phone", "/", PHONE, "dark") as page:
        is_drawn(page, "bytes written per second")
