"""A dead letter topic that cannot be written is found before the first record is handled, in both shells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from acl_client import GROUP, READ, SETTINGS, TOPIC, USERS, WRITE, Grant, UserClient

from ottla import App, ConfigError, UnknownTopic
from ottla.testing import SecureKafka, secure_kafka
from ottla.testing.topics import create_topic

SHELLS = ["threads", "asyncio", "columns"]


@pytest.fixture(scope="module")
def secured() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_PLAINTEXT", mechanism="PLAIN", users=USERS, config=SETTINGS) as running:
        running.create_topic("orders")
        running.create_topic("dead")
        yield running


def app_for(servers: str, **options: Any) -> App:
    app = App("billing", bootstrap_servers=servers, dead_letter_topic="dead", **options)
    app.handler("orders")(lambda value: None)
    started: list[str] = []
    app.on_start(lambda: started.append("opened"))
    app.state["started"] = started
    return app


def test_one_that_is_missing_is_an_error_that_names_the_command(shell: Any, make_cluster: Any) -> None:
    servers = make_cluster(brokers=1, config={"auto.create.topics.enable": "false"}).bootstrap_servers
    create_topic(servers, "orders")
    app = app_for(servers, topics_timeout_s=0)
    shell.start(app)
    error = shell.error_of(app)

    assert isinstance(error, UnknownTopic)
    assert "no dead letter could be written: the cluster at" in str(error)
    assert f"`ottla topics create dead --bootstrap-servers {servers}`" in str(error)
    assert app.state["started"] == [], "before hooks open what they need"


@pytest.mark.representative("threads")
def test_one_that_comes_while_it_is_waited_for_is_fine(shell: Any, make_cluster: Any, wait: Any) -> None:
    servers = make_cluster(brokers=1, config={"auto.create.topics.enable": "false"}).bootstrap_servers
    create_topic(servers, "orders")
    app = app_for(servers, topics_timeout_s=30)
    shell.start(app)
    create_topic(servers, "dead")
    wait(lambda: bool(app.health().partitions), timeout_s=30)
    assert app.health().is_ready


@pytest.mark.representative("asyncio")
def test_it_is_created_by_asking_for_it_only_where_somebody_chose_that(
    shell: Any, make_cluster: Any, wait: Any
) -> None:
    servers = make_cluster(brokers=1, config={"auto.create.topics.enable": "true"}).bootstrap_servers
    create_topic(servers, "orders")
    app = app_for(servers, topics_timeout_s=0)
    shell.start(app)
    assert isinstance(shell.error_of(app), UnknownTopic)
    app = app_for(servers, producer_settings={"allow.auto.create.topics": True})
    shell.start(app)
    wait(lambda: bool(app.health().partitions), timeout_s=30)
    assert app.health().is_ready


def test_one_that_may_be_read_and_not_written_is_an_error_that_names_the_grant(
    shell: Any, secured: SecureKafka, wait: Any
) -> None:
    admin = UserClient(secured.bootstrap_servers, "admin")
    readable = (Grant(READ, TOPIC, "orders"), Grant(READ, TOPIC, "dead"), Grant(READ, GROUP, "billing"))
    settings = dict(secured.settings_of("bob", USERS["bob"]))
    try:
        admin.grant(*readable)
        app = app_for(secured.bootstrap_servers, settings=settings)
        shell.start(app)
        error = shell.error_of(app)
        assert isinstance(error, ConfigError)
        assert "refused User:bob" in str(error)
        assert "It needs WRITE and DESCRIBE on topic dead" in str(error)

        admin.grant(Grant(WRITE, TOPIC, "dead"))
        app = app_for(secured.bootstrap_servers, settings=settings)
        shell.start(app)
        wait(lambda: bool(app.health().partitions), timeout_s=30)
        shell.stop(app)
    finally:
        admin.delete_acls()
        admin.close()
