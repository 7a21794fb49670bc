"""Jobs per second of a queue beside its peers, on one broker and in one run.

    python benchmarks/queues.py [--broker embedded|kafka] [--jobs 50000] [--rounds 3] [--quick] [--results FOLDER]

| row | what |
|---|---|
| `@app.queue`, empty handler | this SDK, in threads and on asyncio |
| `Queue` | this SDK, a loop that accepts each job |
| share consumer of confluent-kafka | librdkafka's preview, explicit acknowledgements, a loop that accepts each |
| the same, job by job | its loop commits each acknowledgement before the next job, so that a kill repeats one job |
| plain consumer of confluent-kafka | a consumer group on the same topic, which acknowledges nothing |
| 1, 10 and 100 members | `Queue`s of one process that share a partition of the embedded broker, Apache Kafka or kfake |
| `kill -9` | from the kill of a member that holds jobs until another member has one of them, ms |

Each takes the same jobs of 100 bytes from one partition of a broker in a process of its own. CPU is the client's
process alone, by job: on a noisy machine it means more than the rate. Contenders take turns.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from goals_of_queues import (
    ASYNCIO,
    BY_MEMBERS,
    KAFKA,
    KFAKE,
    KILL,
    LOOP,
    MEMBERS,
    PLAIN,
    PREVIEW,
    PREVIEW_BY_JOB,
    SHARE_FETCH,
    THREADS,
)
from queues_contenders import CONCURRENCY, CONTENDERS
from results import Results
from servers import OTTLA, Missing, kfake, started

from ottla import Producer, Queue, TopicSpec
from ottla.admin import Admin

SIZE_BYTES = 100
HOLDER = """
import sys
from ottla import Queue
with Queue(sys.argv[2], group=sys.argv[3], bootstrap_servers=sys.argv[1], concurrency=10) as queue:
    held = [queue.take(60) for _ in range(10)]
    print("held", flush=True)
    queue.take(600)
"""


MEMBERS_WITHIN_S = 60.0
BROKERS = {"embedded": "ottla", "kafka": KAFKA, "kfake": KFAKE}
JOBS_BY_JOB = 2_000
MANY = 3
"""So many times the jobs are not in librdkafka's buffer when its first record is handed out."""


@contextmanager
def broker(kind: str) -> Iterator[str]:
    """Yield the address of a broker of its own."""
    if kind == "embedded":
        with started("embedded broker", [*OTTLA, "--port", "0"]) as server:
            yield server.bootstrap
        return
    if kind == "kfake":
        if shutil.which("go") is None:
            raise Missing("Go is not installed")
        with kfake() as server:
            yield server.bootstrap
        return
    from apache_kafka import ApacheKafka, Unavailable

    quick = {"group.share.heartbeat.interval.ms": 1000, "group.share.min.heartbeat.interval.ms": 1000}
    try:
        kafka = ApacheKafka(1, quick)
    except Unavailable as reason:
        raise Missing(str(reason)) from None
    with kafka:
        yield kafka.bootstrap_servers


def filled(servers: str, jobs: int) -> str:
    """Make a topic with so many jobs in one partition."""
    topic = f"jobs-{uuid4().hex[:8]}"
    with Admin(servers) as admin:
        one = TopicSpec(partitions=1)
        admin.create_topics({topic: one, f"{topic}.dead": one})
    with Producer(servers) as producer:
        for _ in range(jobs):
            producer.send(topic, b"x" * SIZE_BYTES)
    return topic


def after_a_kill(servers: str) -> float:
    """Return the milliseconds from a member's death until another member has one of its jobs."""
    topic = filled(servers, 10)
    group = f"{topic}-kill"
    command = [sys.executable, "-c", HOLDER, servers, topic, group]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with Queue(topic, group=group, bootstrap_servers=servers, concurrency=10) as queue:
        assert queue.take(3.0) is None
        killed = time.perf_counter()
        threading.Thread(target=holder.kill).start()
        job = queue.take(60.0)
        taken = time.perf_counter() - killed
        assert job is not None
        job.accept()
    holder.wait()
    return taken * 1_000


def of_members(servers: str, members: int, jobs: int) -> float:
    """Return the jobs per second that so many members of one partition accept, once all have it."""
    topic = filled(servers, 0)
    group = f"{topic}-members"
    queues: list[Queue[bytes]] = []
    accepted = [0] * members
    stopping = threading.Event()

    def work(number: int) -> None:
        with Queue(topic, group=group, bootstrap_servers=servers, concurrency=CONCURRENCY) as queue:
            queues.append(queue)
            while not stopping.is_set():
                while (job := queue.take(0.2)) is not None:
                    job.accept()
                    accepted[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(members)]
    for thread in threads:
        thread.start()
    try:
        until_s = time.perf_counter() + MEMBERS_WITHIN_S
        while sum(bool(queue._client.member.assignment) for queue in list(queues)) < members:
            if time.perf_counter() > until_s:
                raise TimeoutError(f"not all of {members} members had the partition in {MEMBERS_WITHIN_S:g} s")
            time.sleep(0.1)
        began_s = time.perf_counter()
        with Producer(servers) as producer:
            for _ in range(jobs):
                producer.send(topic, b"x" * SIZE_BYTES)
        while sum(accepted) < jobs:
            time.sleep(0.005)
        return jobs / (time.perf_counter() - began_s)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def on_each(results: Results, jobs: int, rounds: int) -> dict[tuple[int, str], list[float]]:
    """Return the rates by members and broker: one broker after the other, and the other way round in the next round."""
    rates: dict[tuple[int, str], list[float]] = {(count, kind): [] for count in MEMBERS for kind in BROKERS}
    for number in range(rounds):
        for kind in list(BROKERS)[:: 1 if number % 2 == 0 else -1]:
            try:
                with broker(kind) as servers:
                    if kind == "kafka":
                        of_members(servers, 1, jobs)  # a JVM needs a while to be fast
                    for count in MEMBERS:
                        rates[count, kind].append(of_members(servers, count, jobs))
                        print(
                            f"{count:3} members, {BROKERS[kind]:14} {rates[count, kind][-1]:10,.0f} jobs/s", flush=True
                        )
            except Missing as error:
                results.problem(BY_MEMBERS.format(MEMBERS[0]), BROKERS[kind], str(error))
    return rates


def one_round(servers: str, jobs: int, rates: dict[str, list[float]], cpu_us: dict[str, list[float]]) -> None:
    for name, (_, take) in CONTENDERS.items():
        topic = filled(servers, jobs)
        taken = JOBS_BY_JOB if name == PREVIEW_BY_JOB else jobs
        began_s = time.process_time()
        try:
            rate = take(servers, topic, taken)
        except Exception as error:  # a peer that is not installed, or does not work on this broker
            print(f"{name:45} {type(error).__name__}: {error}"[:120], flush=True)
            continue
        cpu_us[name].append((time.process_time() - began_s) / taken * 1e6)
        rates[name].append(rate)
        print(f"{name:45} {rate:10,.0f} jobs/s  {cpu_us[name][-1]:6.1f} us of CPU by job", flush=True)


def write(
    results: Results,
    rates: dict[str, list[float]],
    cpu_us: dict[str, list[float]],
    fetched: dict[str, list[float]],
    members: dict[tuple[int, str], list[float]],
    kills: list[float],
) -> None:
    for what in (THREADS, ASYNCIO, LOOP):
        for contender, name in (("ottla", what), *((peer, peer) for peer in (PREVIEW, PREVIEW_BY_JOB, PLAIN))):
            results.add(f"{what}", contender, rates[name], "jobs/s")
    for what in (THREADS, ASYNCIO, LOOP):
        results.add(f"{what}: CPU by job", "ottla", cpu_us[what], "µs")
        results.add(f"{what}: CPU by job", PREVIEW, cpu_us[PREVIEW], "µs")
    for (count, kind), found in members.items():
        results.add(BY_MEMBERS.format(count), BROKERS[kind], found, "jobs/s")
    for name, found in fetched.items():
        results.add(SHARE_FETCH, "ottla" if name == PREVIEW else name, found, "jobs/s")
    results.add(KILL, "ottla", kills, "ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", choices=["embedded", "kafka"], default="embedded")
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short round: rough figures")
    parser.add_argument("--results", type=Path, help="the folder for queues.jsonl")
    options = parser.parse_args()
    if options.quick:
        options.jobs, options.rounds = 20_000, 1
    results = Results("queues", options.results, is_quick=options.quick)
    rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    cpu_us: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    fetched: dict[str, list[float]] = {PREVIEW: [], PLAIN: []}
    with broker(options.broker) as servers:
        for _ in range(options.rounds):
            one_round(servers, options.jobs, rates, cpu_us)
            for name, found in fetched.items():
                jobs = options.jobs * MANY
                found.append(CONTENDERS[name][1](servers, filled(servers, jobs), jobs))
                print(f"{f'{jobs:,} jobs, {name}':45} {found[-1]:10,.0f} jobs/s", flush=True)
        kills = [after_a_kill(servers) for _ in range(options.rounds)]
    members = on_each(results, options.jobs * 2 // 5, options.rounds)
    write(results, rates, cpu_us, fetched, members, kills)
    results.close()
    print(f"{KILL:45} {max(kills):10,.0f} ms at most")


if __name__ == "__main__":
    main()
