"""Questions to one broker that change nothing are sent together, and each still gets its own answer."""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

import pytest
from scripted_broker import HangUp, ScriptedBroker

from ottla.admin.facts.admin_operation import AdminOperation, AdminRequest, Answer
from ottla.admin.operation_runner import OperationRunner
from ottla.errors import BrokerUnavailable
from ottla.wire_client.client_settings import wire_settings
from ottla.wire_client.errors import ApiNotServed, ResponseTooLarge
from ottla_wire.protocol import ApiKey

LIST = {"topics": None, "allow_auto_topic_creation": False}
FIND = {"key_type": 0, "key": "billing", "coordinator_keys": ["billing"]}


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    running = ScriptedBroker()
    running.add_topic("orders")
    yield running
    running.close()


@pytest.fixture
def carrier(broker: ScriptedBroker) -> Iterator[OperationRunner]:
    made = OperationRunner(wire_settings(bootstrap_servers=broker.bootstrap_servers))
    yield made
    made.close()


def side_by_side(*asks: AdminRequest) -> AdminOperation[list[Answer]]:
    return list((yield asks))


def questions(of: int | None = None) -> tuple[AdminRequest, AdminRequest]:
    return (
        AdminRequest(api=ApiKey.METADATA, body=LIST, broker=of),
        AdminRequest(api=ApiKey.FIND_COORDINATOR, body=FIND, broker=of),
    )


def test_the_next_question_is_there_before_the_first_is_answered(
    broker: ScriptedBroker, carrier: OperationRunner
) -> None:
    arrived = []

    def slowly(request: Any, healthy: Any) -> Any:
        poll = (
            select.poll()
        )  # select.select takes no descriptor above 1,023, and brokers of other tests have files open
        poll.register(broker.connections[-1], select.POLLIN)
        arrived.append(bool(poll.poll(30_000)))
        return healthy(request)

    broker.script[ApiKey.METADATA].append(slowly)
    metadata, found = carrier.run(side_by_side(*questions()))
    assert arrived == [True]
    assert [topic.name for topic in metadata.topics] == ["orders"]
    assert found.error_code == 0
    carrier.run(side_by_side(*questions()))
    assert broker.count(ApiKey.API_VERSIONS) == 1, "the connection is kept"


def test_what_a_lost_connection_left_unanswered_is_asked_of_whoever_there_is(
    broker: ScriptedBroker, carrier: OperationRunner
) -> None:
    broker.script[ApiKey.FIND_COORDINATOR].append(hang_up)
    metadata, found = carrier.run(side_by_side(*questions()))
    assert [topic.name for topic in metadata.topics] == ["orders"]
    assert found.error_code == 0
    assert (broker.count(ApiKey.METADATA), broker.count(ApiKey.FIND_COORDINATOR)) == (1, 2)


def test_a_broker_that_is_asked_for_itself_is_asked_once(broker: ScriptedBroker, carrier: OperationRunner) -> None:
    broker.script[ApiKey.FIND_COORDINATOR].append(hang_up)
    metadata, found = carrier.run(side_by_side(*questions(of=1)))
    assert [topic.name for topic in metadata.topics] == ["orders"]
    assert isinstance(found, BrokerUnavailable)
    assert broker.count(ApiKey.FIND_COORDINATOR) == 1


def test_a_question_that_the_broker_does_not_serve_costs_its_own_answer_only(
    broker: ScriptedBroker, carrier: OperationRunner
) -> None:
    body = {"include_cluster_authorized_operations": False}
    first, last = questions()
    metadata, refused, found = carrier.run(
        side_by_side(first, AdminRequest(api=ApiKey.DESCRIBE_CLUSTER, body=body), last)
    )
    assert [topic.name for topic in metadata.topics] == ["orders"]
    assert isinstance(refused, ApiNotServed)
    assert found.error_code == 0


def test_an_answer_that_is_too_large_costs_itself_only(broker: ScriptedBroker) -> None:
    broker.add_topic("wide", partitions=1_000)
    settings = wire_settings(bootstrap_servers=broker.bootstrap_servers)
    carrier = OperationRunner(settings.with_changes(receive_message_max_bytes=1_000))
    try:
        metadata, found = carrier.run(side_by_side(*questions()))
    finally:
        carrier.close()
    assert isinstance(metadata, ResponseTooLarge)
    assert found.error_code == 0


def hang_up(_request: Any, _healthy: Any) -> Any:
    raise HangUp
