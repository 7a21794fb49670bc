"""Clients in the children of a process: what they send arrives, and what a fork carried over is refused."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import pytest

from ottla import AsyncConsumer, Consumer, Producer, shared_producer
from ottla.processes import sigterm_forwarding
from ottla.sync.client import ending
from ottla.testing import Kafka

RECORDS = 1_000

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.timeout(120),
]


@pytest.fixture(autouse=True)
def _collected() -> None:
    """Raw clients that other tests left as garbage would crash a child that collects them."""
    gc.collect()


def send_and_leave(servers: str, topic: str, first: int = 0) -> None:
    """Send, and leave without a flush."""
    producer = Producer(servers)
    for number in range(RECORDS):
        producer.send(topic, b"%d" % (first + number))


def send_shared(arguments: tuple[str, str, int]) -> int:
    servers, topic, number = arguments
    shared_producer(servers).send(topic, b"%d" % number)
    return number


def values_of(kafka: Kafka, topic: str) -> list[int]:
    return sorted(int(record.value or b"") for record in kafka.consume_all(topic))


@pytest.mark.representative("fork")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_that_ends_delivers_what_it_sent(kafka: Kafka, kafka_topic: str, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    child = context.Process(target=send_and_leave, args=(kafka.bootstrap_servers, kafka_topic))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert values_of(kafka, kafka_topic) == list(range(RECORDS))


def test_a_child_does_not_end_the_producers_of_its_parent(kafka: Kafka, kafka_topic: str) -> None:
    context: Any = multiprocessing.get_context("fork")
    with Producer(kafka.bootstrap_servers) as producer:
        producer.send(kafka_topic, b"0").result(30)  # it is connected: it looks no address up during the fork
        child = context.Process(target=send_and_leave, args=(kafka.bootstrap_servers, kafka_topic, 1))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        producer.send(kafka_topic, b"%d" % (RECORDS + 1))
    assert values_of(kafka, kafka_topic) == list(range(RECORDS + 2))


def test_a_pool_delivers_what_its_workers_sent_although_its_block_ends_with_sigterm(
    kafka: Kafka, kafka_topic: str
) -> None:
    context: Any = multiprocessing.get_context("fork")
    work = [(kafka.bootstrap_servers, kafka_topic, number) for number in range(RECORDS)]
    with context.Pool(2) as pool:
        assert pool.map(send_shared, work) == list(range(RECORDS))
    assert values_of(kafka, kafka_topic) == list(range(RECORDS))


def test_a_process_pool_executor_delivers_what_its_workers_sent(kafka: Kafka, kafka_topic: str) -> None:
    context: BaseContext = multiprocessing.get_context("fork")
    work = [(kafka.bootstrap_servers, kafka_topic, number) for number in range(RECORDS)]
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(send_shared, work)) == list(range(RECORDS))
    assert values_of(kafka, kafka_topic) == list(range(RECORDS))


def test_a_child_whose_main_thread_does_not_notice_sigterm_delivers_and_ends_as_terminated(
    kafka: Kafka, kafka_topic: str
) -> None:
    """A worker of a pool that gets the signal right before it waits for its next task."""
    context: Any = multiprocessing.get_context("fork")
    has_sent, never = context.Event(), context.Lock()
    with never:
        child = context.Process(target=send_and_wait_in_c, args=(kafka.bootstrap_servers, kafka_topic, has_sent, never))
        child.start()
        assert has_sent.wait(60)
        child.terminate()
        child.join(60)
    assert child.exitcode == -signal.SIGTERM
    assert values_of(kafka, kafka_topic) == list(range(RECORDS))


def send_and_wait_in_c(servers: str, topic: str, has_sent: Any, never: Any) -> None:
    producer = Producer(servers)
    for number in range(RECORDS):
        producer.send(topic, b"%d" % number)
    has_sent.set()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # another thread gets it: nothing interrupts this one
    never.acquire()


@pytest.mark.representative("while it ends")
@pytest.mark.parametrize("where", ["while it ends", "while it has a lock"])
def test_a_child_that_is_terminated_does_not_wait_for_itself(kafka: Kafka, kafka_topic: str, where: str) -> None:
    """The end of its producers waits for nothing that the interrupted main thread has: an import, the log's lock."""
    context: Any = multiprocessing.get_context("fork")
    child = context.Process(target=send_and_interrupt, args=(kafka.bootstrap_servers, kafka_topic, where))
    child.start()
    child.join(60)
    is_over = not child.is_alive()
    child.kill()
    child.join()
    assert is_over
    assert child.exitcode in (0, -signal.SIGTERM)
    assert values_of(kafka, kafka_topic) == list(range(RECORDS))


def send_and_interrupt(servers: str, topic: str, where: str) -> None:
    sigterm_forwarding._LONGEST_END_S = 3_600.0  # type: ignore[misc]
    lock, at_exit = threading.Lock(), Producer._at_exit

    def end(producer: Producer[Any, Any]) -> None:
        if threading.current_thread() is threading.main_thread():
            os.kill(os.getpid(), signal.SIGTERM)
        with lock:
            at_exit(producer)

    Producer._at_exit = end  # type: ignore[method-assign]
    producer = Producer(servers)
    for number in range(RECORDS):
        producer.send(topic, b"%d" % number)
    if where == "while it has a lock":
        with lock:
            os.kill(os.getpid(), signal.SIGTERM)


def test_the_child_of_a_child_does_not_end_its_parent(kafka: Kafka, kafka_topic: str) -> None:
    context: Any = multiprocessing.get_context("fork")
    child = context.Process(target=send_and_terminate_a_child, args=(kafka.bootstrap_servers, kafka_topic))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert values_of(kafka, kafka_topic) == list(range(RECORDS))


def send_and_terminate_a_child(servers: str, topic: str) -> None:
    producer = Producer(servers)
    grandchild = os.fork()
    if grandchild == 0:
        signal.pause()
    os.kill(grandchild, signal.SIGTERM)
    _, status = os.waitpid(grandchild, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
    for number in range(RECORDS):
        producer.send(topic, b"%d" % number)
    producer.close()


def test_a_child_that_is_terminated_ends_as_terminated_and_a_second_signal_does_not_wait(closed_port: str) -> None:
    context: Any = multiprocessing.get_context("fork")
    has_sent = context.Event()
    child = context.Process(target=send_and_wait, args=(closed_port, has_sent))
    child.start()
    assert has_sent.wait(60)
    child.terminate()
    while child.is_alive():  # the first one waits for records that nobody takes
        child.terminate()
        time.sleep(0.01)
    child.join(60)
    assert child.exitcode == -signal.SIGTERM


def send_and_wait(servers: str, has_sent: Any) -> None:
    Producer(servers).send("t", b"v")
    has_sent.set()
    signal.pause()


def test_the_end_of_a_child_respects_what_sigterm_means_there(kafka: Kafka, kafka_topic: str) -> None:
    script = textwrap.dedent(
        f"""
        import multiprocessing, signal
        from ottla import Producer

        def own(number, frame):
            pass

        def child():
            signal.signal(signal.SIGTERM, own)
            Producer("{kafka.bootstrap_servers}").send("{kafka_topic}", b"v")
            assert signal.getsignal(signal.SIGTERM) is own

        if __name__ == "__main__":
            Producer("{kafka.bootstrap_servers}").close()
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "the process's own is never touched"
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join(60)
            raise SystemExit(process.exitcode)
        """
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=100).returncode == 0
    assert [record.value for record in kafka.consume_all(kafka_topic)] == [b"v"]


IN_THE_C_LIBRARY = """
import os, socket, threading

def look_up():
    socket.getaddrinfo("127.0.0.1", 9, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)

def look_up_for_ever():
    while True:
        look_up()

for _ in range(2):
    threading.Thread(target=look_up_for_ever, daemon=True).start()
"""


@pytest.mark.complete
def test_a_child_in_which_no_address_can_be_looked_up_says_so_before_it_takes_a_record(
    kafka: Kafka, kafka_topic: str
) -> None:
    """glibc: a lock of `getaddrinfo` that another thread of the parent held at the fork is never free in the child."""
    script = IN_THE_C_LIBRARY + textwrap.dedent(
        f"""
        import asyncio
        from ottla import AsyncProducer, Consumer, LifecycleError, Producer
        from ottla.processes import lookups

        lookups.LONGEST_S = 3.0

        def refused(make):
            try:
                make()
            except LifecycleError as error:
                return "host names cannot be resolved" in str(error)
            return False

        async def start():
            async with AsyncProducer("{kafka.bootstrap_servers}") as producer:
                producer.send("{kafka_topic}", b"never")

        refusals = forks = 0
        while refusals < 2 and forks < 100:
            child = os.fork()
            if not child:
                try:
                    producer = Producer("{kafka.bootstrap_servers}")
                except LifecycleError as error:
                    consumer = Consumer("t", group="g", bootstrap_servers="{kafka.bootstrap_servers}")
                    is_said = "host names cannot be resolved" in str(error)
                    is_said = is_said and refused(consumer.start) and refused(lambda: asyncio.run(start()))
                    os._exit(1 if is_said else 2)
                producer.send("{kafka_topic}", b"v").result(60)
                os._exit(0)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code in (0, 1), code
            refusals, forks = refusals + code, forks + 1
        print(forks, refusals)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=110, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    forks, refusals = map(int, done.stdout.split())
    if not refusals:
        pytest.skip("this C library lets the child of a fork look addresses up")
    assert len(kafka.consume_all(kafka_topic)) == forks - refusals


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux, to see a process's threads")
@pytest.mark.skipif(ending._version() < ending._FIRST_SAFE, reason="needs confluent-kafka 2.16")
def test_a_closed_producer_leaves_nothing_to_a_fork(kafka: Kafka, kafka_topic: str) -> None:
    script = textwrap.dedent(
        f"""
        import os, time
        from ottla import Producer

        with Producer("{kafka.bootstrap_servers}") as producer:
            producer.send("{kafka_topic}", b"v")
        while len(os.listdir("/proc/self/task")) > 1:
            time.sleep(0.01)
        """
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


def in_a_child(check: Callable[[], None]) -> str:
    """Run `check` in the child of a fork; what it raised, in words."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            check()
            answer = "nothing"
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writes, answer.encode())
        os._exit(0)
    os.close(writes)
    try:
        with os.fdopen(reads, "rb") as pipe:
            answer = pipe.read().decode()
    finally:
        os.waitpid(child, 0)
    return answer


REFUSED = "LifecycleError: this consumer was copied by a fork: its {} stayed in the parent process; make a consumer"


def test_a_consumer_carried_over_a_fork_is_refused_and_its_parent_goes_on(kafka: Kafka, kafka_topic: str) -> None:
    kafka.produce(kafka_topic, [b"1", b"2"])
    with Consumer(kafka_topic, group=kafka_topic, bootstrap_servers=kafka.bootstrap_servers) as consumer:
        records: list[Any] = []
        while len(records) < 2:
            records += consumer.poll(0.2)
        checks: dict[str, Callable[[], Any]] = {
            "poll": lambda: consumer.poll(30),
            "iterate": lambda: next(iter(consumer)),
            "ack": lambda: consumer.ack(records[0]),
            "commit": consumer.commit,
            "pause": consumer.pause,
            "health": consumer.health,
            "position": lambda: consumer.position(records[0].topic_partition),
            "start": consumer.start,
        }
        wanted = REFUSED.format("threads and connections")
        for name, check in checks.items():
            assert in_a_child(check).startswith(wanted), name
        assert in_a_child(consumer.close) == "nothing", "the parent's is not the child's to close"
        consumer.ack(*records)
        consumer.commit()
        assert consumer.position(records[0].topic_partition) == 2


def test_a_consumer_that_has_not_started_is_the_childs_to_start(kafka: Kafka, kafka_topic: str) -> None:
    kafka.produce(kafka_topic, [b"1"])
    consumer = Consumer(kafka_topic, group=kafka_topic, bootstrap_servers=kafka.bootstrap_servers)

    def consume() -> None:
        with consumer:
            for record in consumer:
                raise LookupError(record.value)

    assert in_a_child(consume) == "LookupError: b'1'"


async def test_an_asyncio_consumer_carried_over_a_fork_is_refused(kafka: Kafka, kafka_topic: str) -> None:
    def run(coroutine: Any) -> None:
        try:
            coroutine.send(None)
        except StopIteration:
            return
        raise AssertionError("it waits in the child")

    kafka.produce(kafka_topic, [b"1"])
    async with AsyncConsumer(kafka_topic, group=kafka_topic, bootstrap_servers=kafka.bootstrap_servers) as consumer:
        records: list[Any] = []
        while not records:
            records = await consumer.poll(0.2)
        wanted = REFUSED.format("event loop and connections")
        assert in_a_child(lambda: run(consumer.poll(30))).startswith(wanted)
        assert in_a_child(lambda: consumer.ack(records[0])).startswith(wanted)
        assert in_a_child(lambda: consumer.health() and None).startswith(wanted)
        assert in_a_child(lambda: run(consumer.close())) == "nothing"
        consumer.ack(records[0])
        await consumer.commit()


def test_an_asyncio_producer_left_open_in_a_child_says_what_it_lost(kafka: Kafka) -> None:
    script = textwrap.dedent(
        f"""
        import asyncio, multiprocessing
        from ottla import AsyncProducer

        def child():
            async def main():
                producer = AsyncProducer("{kafka.bootstrap_servers}", settings={{"linger.ms": 10_000}})
                await producer.start()
                producer.send("t", b"v")
            asyncio.run(main())

        if __name__ == "__main__":
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join(60)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=100, capture_output=True, text=True)
    assert "records_lost_at_exit" in done.stdout + done.stderr
