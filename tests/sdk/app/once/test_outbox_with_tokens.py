"""An outbox is relayed to a cluster that wants tokens, by an app and by a relay of its own, with one token."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apps_in_threads import serving

from ottla import App, Outbox, Str
from ottla.sync.serve.outbox_relay import OutboxRelay
from ottla.testing import SecureKafka, secure_kafka, wait_until
from ottla.tokens.shared import forget_sources

from .conftest import sqlite_store

pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka(mechanism="OAUTHBEARER") as running:
        yield running


class Database:
    """An outbox in a file, and what a service writes into it."""

    def __init__(self, folder: Path) -> None:
        store = sqlite_store(folder)
        self.outbox: Outbox = Outbox(store, value=Str())
        self.outbox.create_tables()
        self.connection = store.connection().transaction

    def add(self, topic: str, *values: str) -> None:
        self.connection.execute("begin")
        for value in values:
            self.outbox.add(self.connection, topic, value)
        self.connection.execute("commit")

    def is_drained(self) -> bool:
        session = self.outbox.session()
        try:
            return session.lag().waiting == 0
        finally:
            session.close()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path)
    yield made
    made.connection.close()


def relayed(kafka: SecureKafka, topic: str) -> list[Any]:
    return [record.value for record in kafka.consume_all(topic, at_least=2, value=Str(), timeout_s=30)]


def test_a_relay_has_one_token(kafka: SecureKafka, database: Database) -> None:
    assert kafka.endpoint is not None
    topic = kafka.create_topic(kafka.fresh_name("topic"))
    database.add(topic, "a", "b")
    forget_sources()
    asked = kafka.endpoint.asked
    relay = OutboxRelay(database.outbox, kafka.bootstrap_servers, settings=kafka.settings, interval_s=0.02)
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        wait_until(database.is_drained, timeout_s=60, what="an empty outbox")
    finally:
        relay.stop()
        thread.join(60)
    assert relayed(kafka, topic) == ["a", "b"]
    assert kafka.endpoint.asked == asked + 1


@pytest.mark.complete
def test_a_relay_waits_while_no_token_is_to_be_had_and_loses_nothing(kafka: SecureKafka, database: Database) -> None:
    assert kafka.endpoint is not None
    topic, other = (kafka.create_topic(kafka.fresh_name("topic")) for _ in range(2))
    database.add(topic, "a", "b")
    forget_sources()
    kafka.endpoint.fail(503)
    asked = kafka.endpoint.asked
    app = App(topic, bootstrap_servers=kafka.bootstrap_servers, settings=kafka.settings)
    app.relay(database.outbox, interval_s=0.02)
    app.handler(other)(lambda record: None)
    with serving(app, is_async=False) as ended:
        endpoint = kafka.endpoint
        wait_until(lambda: bool(ended) or endpoint.asked > asked + 1, timeout_s=60, what="two requests for a token")
        assert ended == []
        assert not app.health().is_ready
        assert not database.is_drained()
        kafka.endpoint.recover()
        wait_until(lambda: bool(ended) or database.is_drained(), timeout_s=90, what="an empty outbox")
        assert ended == []
    assert relayed(kafka, topic) == ["a", "b"]
