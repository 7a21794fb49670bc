"""What a transaction does when something in it fails, is not answered, or belongs to an older instance. Both shells."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from both_shells import PRODUCERS, committed_values, state_of

from broker_embedded.cluster import EmbeddedCluster
from ottla.errors import BrokerUnavailable, DeliveryError, FencedError, OttlaError, RecordTooLarge
from ottla.producer import ProducerTransactionState

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture(params=sorted(PRODUCERS))
def make(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> Callable[..., Any]:
    """A function that makes a transactional producer."""

    def make(transactional_id: str, **settings: Any) -> Any:
        named = {"transactional.id": transactional_id, **settings}
        return PRODUCERS[request.param](cluster.bootstrap_servers, settings=named)

    return make


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    name = f"t-{abs(hash(request.node.name))}"
    cluster.create_topic(name)
    return name


# -- fencing -----------------------------------------------------------------------------------------------------------


@pytest.mark.representative("asyncio")
async def test_a_fenced_producer_says_so_and_leaves_its_successor_alone(
    make: Callable[..., Any], topic: str, cluster: EmbeddedCluster
) -> None:
    """Nothing but sends: the first word of the fencing is the answer to a record."""
    old = make(topic)
    await old.start()
    async with make(topic) as new:

        async def go_on() -> None:
            async with old.transaction():
                old.send(topic, b"old")

        for _ in range(2):
            with pytest.raises(FencedError):
                await go_on()
            assert state_of(old) is ProducerTransactionState.FENCED
            async with new.transaction():
                new.send(topic, b"new")
    await old.close()
    assert await committed_values(cluster, topic) == [b"new", b"new"]


@pytest.mark.representative("asyncio")
async def test_a_fenced_producer_whose_caller_swallowed_the_failure_is_at_its_end_as_well(
    make: Callable[..., Any], topic: str, cluster: EmbeddedCluster
) -> None:
    old = make(topic)
    await old.start()

    async def go_on() -> None:
        async with old.transaction():
            with pytest.raises(OttlaError):
                await old.send(topic, b"old")
            raise ZeroDivisionError

    async with make(topic) as new:
        with pytest.raises(FencedError) as fenced:
            await go_on()
        assert isinstance(fenced.value.__context__, ZeroDivisionError)
        async with new.transaction():
            new.send(topic, b"new")
    await old.close()
    assert await committed_values(cluster, topic) == [b"new"]


@pytest.mark.representative("threads")
async def test_an_abort_without_an_answer_does_not_fence_a_newer_producer(
    make: Callable[..., Any], topic: str, cluster: EmbeddedCluster
) -> None:
    """The old one cannot know that it was fenced: its abort is not answered until the newer one works."""
    old = make(topic)
    await old.start()

    async def fail() -> None:
        async with old.transaction(timeout_s=1):
            await old.send(topic, b"old")
            raise ZeroDivisionError

    with cluster.faults.add(api="END_TXN", transactional_id=topic, error="COORDINATOR_LOAD_IN_PROGRESS"):
        with pytest.raises(ZeroDivisionError) as error:
            await fail()
        assert "the abort is not settled, the next transaction begins with it" in str(error.value.__notes__)
        assert state_of(old) is ProducerTransactionState.ABORTING
    async with make(topic) as new:
        with pytest.raises(FencedError):
            await old.transaction().__aenter__()
        async with new.transaction():
            new.send(topic, b"new")
    await old.close()
    assert await committed_values(cluster, topic) == [b"new"]


# -- failures inside ---------------------------------------------------------------------------------------------------


@pytest.mark.representative("threads")
async def test_a_failure_that_was_looked_at_still_keeps_the_transaction_from_being_committed(
    make: Callable[..., Any], topic: str, cluster: EmbeddedCluster
) -> None:
    is_looked_at = threading.Event()

    def look(delivery: Any) -> None:
        assert delivery.exception() is not None
        delivery.mark_handled()
        is_looked_at.set()

    async def send() -> None:
        async with producer.transaction():
            await producer.send(topic, b"good")
            with pytest.raises(OttlaError):
                await producer.send(topic, b"bad", partition=99, on_delivery=look)

    async with make(topic) as producer:
        with pytest.raises(DeliveryError, match="found partition 99"):
            await send()
        assert await asyncio.to_thread(is_looked_at.wait, 30)
        assert state_of(producer) is ProducerTransactionState.READY
        async with producer.transaction():
            producer.send(topic, b"again")
    assert await committed_values(cluster, topic) == [b"again"]


@pytest.mark.representative("asyncio-send")
@pytest.mark.parametrize("way", ["send", "send_many"])
async def test_a_refused_record_that_was_swallowed_keeps_the_transaction_from_being_committed(
    make: Callable[..., Any], topic: str, cluster: EmbeddedCluster, way: str
) -> None:
    async def send() -> None:
        async with producer.transaction():
            await producer.send(topic, b"good")
            with pytest.raises(RecordTooLarge):
                await ways[way]()
            await producer.send(topic, b"good as well")

    async def send_too_large() -> None:
        producer.send(topic, bytes(2_000_000), key=b"k")

    async def send_many_too_large() -> None:
        await producer.send_many(topic, [(b"1",), (bytes(2_000_000), b"k")])

    ways = {"send": send_too_large, "send_many": send_many_too_large}
    async with make(topic) as producer:
        with pytest.raises(DeliveryError, match=r"1 record\(s\) not delivered: .* record is 2,000,0.. bytes") as error:
            await send()
        assert isinstance(error.value.__cause__, RecordTooLarge)
        async with producer.transaction():
            producer.send(topic, b"next")
    assert await committed_values(cluster, topic) == [b"next"]


async def test_offsets_that_were_not_taken_keep_the_transaction_from_being_committed(
    make: Callable[..., Any], topic: str, cluster: EmbeddedCluster
) -> None:
    async def send() -> None:
        async with producer.transaction() as transaction:
            await producer.send(topic, b"good")
            with pytest.raises(OttlaError):
                await transaction.send_offsets({(topic, 0): 1}, None)

    async with make(topic) as producer:
        with pytest.raises(OttlaError, match="send_offsets: found None"):
            await send()
        assert state_of(producer) is ProducerTransactionState.READY
    assert await committed_values(cluster, topic) == []


@pytest.mark.representative("threads")
async def test_what_is_not_acknowledged_in_time_is_not_left_out_of_a_commit(
    make: Callable[..., Any], topic: str, cluster: EmbeddedCluster
) -> None:
    async def send() -> None:
        async with producer.transaction(timeout_s=2):
            producer.send(topic, b"late", partition=0)

    async with make(topic) as producer:
        refused = cluster.faults.add(api="PRODUCE", topic=topic, error="NOT_LEADER_OR_FOLLOWER")
        with refused, pytest.raises(DeliveryError, match="not acknowledged yet"):
            await send()
        async with producer.transaction():
            producer.send(topic, b"next")
    assert await committed_values(cluster, topic) == [b"next"]


# -- answers that do not come ------------------------------------------------------------------------------------------


@pytest.mark.representative("asyncio-never done")
@pytest.mark.parametrize("is_applied", [False, True], ids=["never done", "done, and the answer lost"])
async def test_the_next_transaction_settles_a_commit_without_an_answer(
    make: Callable[..., Any], topic: str, cluster: EmbeddedCluster, is_applied: bool
) -> None:
    async def send(value: bytes, timeout_s: float) -> None:
        async with producer.transaction(timeout_s):
            await producer.send(topic, value)

    how = {"disconnect": True, "after_apply": True} if is_applied else {"error": "COORDINATOR_LOAD_IN_PROGRESS"}
    async with make(topic) as producer:
        with cluster.faults.add(api="END_TXN", transactional_id=topic, **how):
            with pytest.raises(BrokerUnavailable):
                await send(b"1", 1)
            with pytest.raises(BrokerUnavailable):  # still nobody says, and it does ask
                await producer.transaction(1).__aenter__()
            assert state_of(producer) is ProducerTransactionState.COMMITTING
        await send(b"2", 60)
    assert await committed_values(cluster, topic) == [b"1", b"2"]


@pytest.mark.representative("threads")
async def test_closing_settles_a_commit_without_an_answer(
    make: Callable[..., Any], topic: str, cluster: EmbeddedCluster
) -> None:
    async def send() -> None:
        async with producer.transaction(timeout_s=1):
            await producer.send(topic, b"1")

    producer = make(topic)
    await producer.start()
    loading = cluster.faults.add(api="END_TXN", transactional_id=topic, error="COORDINATOR_LOAD_IN_PROGRESS")
    with loading, pytest.raises(BrokerUnavailable):
        await send()
    await producer.close()
    assert await committed_values(cluster, topic) == [b"1"]


async def test_a_commit_that_was_cancelled_before_it_was_asked_for_leaves_nothing_open(
    topic: str, cluster: EmbeddedCluster
) -> None:
    async def send() -> None:
        async with producer.transaction():
            producer.send(topic, b"late")

    async with PRODUCERS["asyncio"](cluster.bootstrap_servers, settings={"transactional.id": topic}) as producer:
        with cluster.faults.add(api="PRODUCE", topic=topic, error="NOT_LEADER_OR_FOLLOWER") as refused:
            sending = asyncio.create_task(send())
            await asyncio.to_thread(refused.wait, 1, 30)
            sending.cancel()
            refused.remove()
            with pytest.raises(asyncio.CancelledError):
                await sending
        assert state_of(producer) is ProducerTransactionState.READY
        async with producer.transaction():
            producer.send(topic, b"next")
    assert await committed_values(cluster, topic) == [b"next"]
