"""Text that a client of C cannot take is refused where it is declared: it ends the process there, or is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla import App, Consumer, ExactlyOnce, Outbox, Producer
from ottla.config import admin_settings, consumer_settings, producer_settings
from ottla.errors import ConfigError
from ottla.stores import Sqlite
from ottla.sync.serve.outbox_relay import OutboxRelay
from ottla.sync.serve.scheduler import Scheduler

HERE = "localhost:9092"


def _handler(**options: Any) -> None:
    @App("shop", bootstrap_servers=HERE).handler("orders", **options)
    def handle(value: bytes) -> None: ...


DECLARED: dict[str, Callable[[str], Any]] = {
    "an address": lambda bad: Producer(bad),
    "a client id": lambda bad: Producer(HERE, settings={"client.id": bad}),
    "a transactional id": lambda bad: Producer(HERE, settings={"transactional.id": bad}),
    "a password": lambda bad: producer_settings(HERE, settings={"sasl.password": bad, "sasl.username": "me"}),
    "a list of addresses": lambda bad: Producer([HERE, bad]),
    "a variable": lambda bad: producer_settings(HERE, environ={"OTTLA_CLIENT_CLIENT_ID": bad}),
    "a topic of a producer": lambda bad: Producer(HERE, topics=[bad]),
    "a schedule of a producer": lambda bad: Producer(HERE, schedule=bad),
    "a setting of librdkafka alone": lambda bad: consumer_settings(HERE, group_id="g", settings={"client.rack": bad}),
    "a setting of an admin": lambda bad: admin_settings(HERE, settings={"client.id": bad}),
    "a group of a consumer": lambda bad: Consumer("orders", group=bad, bootstrap_servers=HERE),
    "a topic of a consumer": lambda bad: Consumer(bad, group="g", bootstrap_servers=HERE),
    "a dead letter topic of a consumer": lambda bad: Consumer(
        "orders", group="g", bootstrap_servers=HERE, dead_letter_topic=bad
    ),
    "an instance of exactly once": lambda bad: ExactlyOnce(instance=bad),
    "a group of an app": lambda bad: App(bad),
    "a dead letter topic of an app": lambda bad: App("shop", dead_letter_topic=bad),
    "a dead letter topic of a handler": lambda bad: _handler(dead_letter_topic=bad),
    "a topic to create": lambda bad: App("shop", create_topics={bad: 3}),
    "a schedule of a scheduler": lambda bad: Scheduler(HERE, name=bad),
    "a schedule of an app": lambda bad: App("shop", scheduler=bad),
}


@pytest.mark.parametrize("bad", ["\ud800", "caf\udce9", "nul\0behind"])
@pytest.mark.parametrize("place", DECLARED)
def test_text_that_is_no_unicode_or_has_a_nul_is_refused_where_it_is_declared(place: str, bad: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DECLARED[place](bad)
    if "password" in place:
        assert bad not in str(caught.value)


def test_a_setting_of_a_relay_is_refused_as_well(tmp_path: Any) -> None:
    outbox = Outbox(Sqlite(tmp_path / "outbox.db"))
    with pytest.raises(ConfigError, match=r"client\.id"):
        OutboxRelay(outbox, HERE, settings={"client.id": "\ud800"})
