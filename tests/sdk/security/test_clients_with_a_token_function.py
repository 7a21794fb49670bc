"""Every client with `token=`, a function of its caller, against a broker that wants tokens over TLS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest
from apps_in_threads import serving

from ottla import App, AsyncConsumer, AsyncProducer, Consumer, Context, Producer
from ottla.admin import Admin, AsyncAdmin
from ottla.columnar import consume, read, write
from ottla.testing import SecureKafka, secure_kafka, wait_until
from ottla.testing.oidc import OidcEndpoint
from ottla.tokens import Token

pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka(mechanism="OAUTHBEARER") as running:
        yield running


class Issuing:
    """A function that returns tokens, and how often it was called."""

    def __init__(self, endpoint: OidcEndpoint) -> None:
        self.endpoint = endpoint
        self.calls = 0

    def __call__(self) -> Token:
        self.calls += 1
        return self.endpoint.issue("alice")


class AsyncIssuing(Issuing):
    async def __call__(self) -> Token:  # type: ignore[override]
        return super().__call__()


@pytest.fixture(params=[Issuing, AsyncIssuing], ids=["sync", "async"])
def token(kafka: SecureKafka, request: pytest.FixtureRequest) -> Any:
    assert kafka.endpoint is not None
    return request.param(kafka.endpoint)


@pytest.fixture
def given(kafka: SecureKafka, token: Any) -> dict[str, Any]:
    """The arguments of a client."""
    tls = {name: kafka.settings[name] for name in ("security.protocol", "ssl.ca.location")}
    return {"bootstrap_servers": kafka.bootstrap_servers, "settings": tls, "token": token}


@pytest.fixture
def topic(kafka: SecureKafka) -> str:
    return kafka.create_topic(kafka.fresh_name("topic"))


@pytest.mark.representative("async")
def test_threads_write_and_read_with_one_call(given: dict[str, Any], token: Any, topic: str) -> None:
    with Producer(**given) as producer:
        producer.send(topic, b"1").result(30)
    with Consumer(topic, group=topic, **given) as consumer:
        assert [record.value for record in islice(consumer, 1)] == [b"1"]
    assert token.calls == 1


async def test_an_event_loop_writes_and_reads_with_one_call(given: dict[str, Any], token: Any, topic: str) -> None:
    async with AsyncProducer(**given) as producer:
        await producer.send(topic, b"1")
    async with AsyncConsumer(topic, group=topic, **given) as consumer:
        async for record in consumer:
            assert record.value == b"1"
            break
    async with AsyncAdmin(**given) as admin:
        assert topic in {each.name for each in await admin.list_topics()}
    assert token.calls == 1


def test_columns_and_administration_with_one_call(given: dict[str, Any], token: Any, topic: str) -> None:
    with Admin(**given) as admin:
        assert topic in {each.name for each in admin.list_topics()}
    write(topic, pa.table({"value": [b"1", b"2"]}), **given)
    assert read(topic, **given).read_all()["value"].to_pylist() == [b"1", b"2"]
    with consume(topic, group=topic, **given) as batches:
        batch = next(iter(batches))
        assert len(batch) == 2
    assert token.calls == 1


@pytest.mark.representative("sync-threads")
@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_a_service_with_its_producer_scheduler_and_dead_letters_calls_once(
    kafka: SecureKafka, given: dict[str, Any], token: Any, topic: str, is_async: bool
) -> None:
    letters, name = kafka.create_topic(kafka.fresh_name("letters")), kafka.fresh_name("schedule")
    app = App(topic, dead_letter_topic=letters, scheduler=name, **given)
    producer: Any = app.async_producer() if is_async else app.producer()
    copies = kafka.create_topic(kafka.fresh_name("copies"))

    def handle(value: bytes, context: Context) -> None:
        if value == b"bad":
            raise ValueError("never")
        producer.send(copies, value)

    async def handle_async(value: bytes, context: Context) -> None:
        if value == b"bad":
            raise ValueError("never")
        await producer.send(copies, value)

    chosen: Callable[..., Any] = handle_async if is_async else handle
    app.handler(topic)(chosen)
    with Producer(schedule=name, **given) as writing:
        writing.send_many(topic, [(b"good",), (b"bad",)])
        writing.send(topic, b"later", deliver_after=0.1).result(30)
    with serving(app, is_async=is_async) as ended:
        wait_until(
            lambda: bool(ended) or (count(copies, given) == 2 and count(letters, given) == 1),
            timeout_s=60,
            what="two copies and a dead letter",
        )
        assert ended == []
    assert token.calls == 1


def count(topic: str, given: dict[str, Any]) -> int:
    return int(read(topic, **given).read_all().num_rows)
