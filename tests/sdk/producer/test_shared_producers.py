"""One producer per process, and per event loop: who asks for the same one gets the same one."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from ottla import (
    ConfigError,
    Consumer,
    DeliveryError,
    Json,
    Producer,
    close_shared_async_producers,
    close_shared_producers,
    shared_async_producer,
    shared_producer,
)
from ottla.browse.topic_reader import TopicReader
from ottla.testing.topics import create_topic


@pytest.fixture(autouse=True)
def nobody_else_has_one() -> Iterator[None]:
    yield
    close_shared_producers(10)


def test_every_thread_gets_the_same_one(kafka: Any, kafka_topic: str) -> None:
    found: list[Producer] = []

    def ask() -> None:
        producer = shared_producer(kafka.bootstrap_servers, settings={"linger.ms": 1})
        producer.send(kafka_topic, b"v").result(30)
        found.append(producer)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(found) == 8
    assert len({id(producer) for producer in found}) == 1
    assert len(kafka.consume_all(kafka_topic)) == 8


def test_other_settings_or_serdes_are_another_one(kafka: Any) -> None:
    serde = Json()
    plain = shared_producer(kafka.bootstrap_servers)

    assert shared_producer(kafka.bootstrap_servers, settings={"linger.ms": 7}) is not plain
    assert shared_producer(kafka.bootstrap_servers, value=serde) is not plain
    assert shared_producer(kafka.bootstrap_servers, value=serde) is shared_producer(
        kafka.bootstrap_servers, value=serde
    )


def test_after_a_close_there_is_a_new_one(kafka: Any, kafka_topic: str) -> None:
    first = shared_producer(kafka.bootstrap_servers)
    first.close()
    second = shared_producer(kafka.bootstrap_servers)

    assert second is not first
    second.send(kafka_topic, b"v").result(30)


def test_closing_them_flushes_and_raises_what_was_not_delivered(kafka: Any, kafka_topic: str) -> None:
    producer = shared_producer(kafka.bootstrap_servers, settings={"linger.ms": 1_000})
    producer.send(kafka_topic, b"v")
    close_shared_producers()
    assert len(kafka.consume_all(kafka_topic)) == 1

    lost = shared_producer("127.0.0.1:1", settings={"delivery.timeout.ms": 2_000, "request.timeout.ms": 1_000})
    lost.send(kafka_topic, b"v")
    with pytest.raises(DeliveryError):
        close_shared_producers(0.01)
    assert lost.is_closed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_child_of_a_fork_gets_its_own(kafka: Any, kafka_topic: str) -> None:
    parents = shared_producer(kafka.bootstrap_servers)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            own = shared_producer(kafka.bootstrap_servers)
            own.send(kafka_topic, b"child").result(30)
            own.close(10)
            code = 0 if own is not parents else 2
        except BaseException:
            traceback.print_exc()  # all that is ever seen of it
            sys.stderr.flush()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    parents.send(kafka_topic, b"parent").result(30)

    assert {record.value for record in kafka.consume_all(kafka_topic)} == {b"child", b"parent"}


@pytest.mark.representative("topic calls")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("left_behind", ["open producer", "closed producer", "consumer", "topic calls"])
def test_the_child_of_a_fork_outlives_the_collection_of_what_it_was_carried(
    kafka: Any, kafka_topic: str, kafka_group: str, left_behind: str
) -> None:
    """librdkafka's destructors join threads, which stay with the parent: the child would wait for ever."""
    gc.collect()  # raw clients that other tests left behind are nobody's to guard
    servers = kafka.bootstrap_servers
    carried: Any
    if left_behind == "topic calls":
        carried = TopicReader(servers, kafka_topic)
        with pytest.raises(ConfigError):
            create_topic(servers, kafka_topic)  # exists: the error keeps the client in a cycle
    elif left_behind == "consumer":
        carried = Consumer(kafka_topic, group=kafka_group, bootstrap_servers=servers)
        carried.poll(0.01)
    else:
        carried = Producer(servers)
        carried.start()  # asks for limits, so that the client that asks is there too
        if left_behind == "closed producer":
            carried.close(10)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            del carried
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    deadline_s = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    carried.close()
    assert ended[0] == child, "it hangs"
    assert os.waitstatus_to_exitcode(ended[1]) == 0


async def test_every_task_of_a_loop_gets_the_same_one_started_once(kafka: Any, kafka_topic: str) -> None:
    producers = await asyncio.gather(*(shared_async_producer(kafka.bootstrap_servers) for _ in range(5)))
    assert len({id(producer) for producer in producers}) == 1
    await producers[0].send(kafka_topic, b"v")
    await close_shared_async_producers()
    assert producers[0].is_closed

    again = await shared_async_producer(kafka.bootstrap_servers)
    assert again is not producers[0]
    await again.send(kafka_topic, b"v")
    await close_shared_async_producers()
