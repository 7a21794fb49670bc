"""What a person waits for in `ottla console`, what it takes, and what watching costs those who are watched.

    python benchmarks/console.py [--rounds 15] [--topics 1000] [--partitions 10]

One embedded broker with 1,000 topics of 10 partitions, and the console as a process of its own, asked over HTTP as its
pages ask. Every page's answer is timed while the console goes on reading the cluster every three seconds. Then a topic
is written as fast as a client can, in turns unwatched and followed by a page that also asks for the topic's figures:
both rates, the CPU time that broker, writer and console took for a record, which says the same on a machine that others
use too, and the memory that the console has by then. The memory is the largest resident set of the whole run.
"""

from __future__ import annotations

import argparse
import http.client
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from operations import COMMAND, GROUP, filled
from results import FOLDER, Results
from servers import Server

from ottla.admin import Admin, TopicSpec

TOKEN = "the-token-of-a-benchmark"
PAGE_MS, FIRST_S, MEMORY_MB = 300.0, 5.0, 120.0
FAST = "fast"
LOAD = """
import sys, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 5, "queue.buffering.max.messages": 200000})
acked = 0
def delivered(error, message):
    global acked
    acked += error is None
value = b'{"id": 4711, "text": "' + b"x" * 76 + b'"}'
begun = time.monotonic()
until = begun + float(sys.argv[3])
while time.monotonic() < until:
    for _ in range(500):
        try:
            producer.produce(sys.argv[2], value, on_delivery=delivered)
        except BufferError:
            producer.poll(0.01)
    producer.poll(0)
in_time = acked
seconds = time.monotonic() - begun
producer.purge()
print(in_time / seconds)
"""
"""Writes as fast as it can for so many seconds; prints the records acknowledged a second."""


@dataclass
class Console:
    """`ottla console` in a child process."""

    port: int
    pid: int
    kept: http.client.HTTPConnection = field(init=False)

    def __post_init__(self) -> None:
        self.kept = self.connection()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def get(self, path: str) -> bytes:
        """The answer to a GET over a connection that stays, as a browser's does."""
        try:
            self.kept.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
            answered = self.kept.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):  # it was idle for too long
            self.kept = self.connection()
            return self.get(path)
        content = answered.read()
        if answered.status != 200:
            raise SystemExit(f"{path}: {answered.status} {content[:300]!r}")
        return content

    def cpu_s(self) -> float:
        """CPU time of the process so far, in hundredths of a second."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self, name: str) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith(f"{name}:")) / 1024


@contextmanager
def console(bootstrap: str) -> Iterator[Console]:
    process = subprocess.Popen(
        [*COMMAND, "console", "-b", bootstrap, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OTTLA_CONSOLE_TOKEN": TOKEN},
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline()
        yield Console(int(address.partition("/#")[0].rpartition(":")[2]), process.pid)
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
            process.communicate()


def pages(topics: int) -> dict[str, str]:
    """What each page asks for: page → path."""

    def api(name: str, /, **asked: str) -> str:
        return f"/api/{name}?{urlencode(asked)}"

    return {
        "the page itself": "/",
        "cluster": api("cluster"),
        "topics": api("topics"),
        "topics by rate": api("topics", sort="rate"),
        "topics, a regex, the last page": api("topics", match="/^orders-.*[0-9]$/", page=str(topics // 100 - 1)),
        "one topic": api("topic", name="orders-0001"),
        "its newest records": api("records", topic="orders-0001"),
        "its groups": api("topic/groups", name="orders-0001"),
        "groups": api("groups"),
        "one group": api("group", name=GROUP),
        "dead letters": api("letters/topics"),
        "doctor": api("doctor"),
        "moves": api("moves"),
    }


def time_pages(results: Results, bootstrap: str, topics: int, rounds: int, facts: str) -> None:
    begun = time.perf_counter()
    with console(bootstrap) as served:
        ready_s = time.perf_counter() - begun
        asked = time.perf_counter()
        served.get("/api/cluster")
        first_s = time.perf_counter() - asked
        results.add("first facts, from the start of the process", "ottla", [ready_s + first_s], "s", goal=FIRST_S)
        results.add("first facts: CPU", "ottla", [served.cpu_s()], "s")
        print(f"ready after {ready_s:.2f} s, first facts {first_s:.2f} s later, {served.cpu_s():.2f} s CPU", flush=True)
        all_pages = pages(topics)
        for path in all_pages.values():  # the first time each is asked, modules are loaded and the doctor looks
            served.get(path)
        took: dict[str, list[float]] = {name: [] for name in all_pages}
        for _ in range(rounds):
            for name, path in all_pages.items():
                asked = time.perf_counter()
                served.get(path)
                took[name].append((time.perf_counter() - asked) * 1000)
            time.sleep(0.31)  # so that rounds meet the reading of facts at every point of it
        for name, each in took.items():
            results.add(f"page: {name}", "ottla", each, "ms", goal=PAGE_MS)
            print(f"page: {name:<32} {statistics.median(each):7.1f} ms, slowest {max(each):7.1f} ms", flush=True)
        slowest = max(max(each) for each in took.values())
        results.add(f"slowest page, {facts}", "ottla", [slowest], "ms", goal=PAGE_MS)
        results.add(f"memory after all pages, {facts}", "ottla", [served.megabytes("VmHWM")], "MB", goal=MEMORY_MB)
        print(f"memory {served.megabytes('VmRSS'):.0f} MB, at most {served.megabytes('VmHWM'):.0f} MB", flush=True)


@contextmanager
def followed(served: Console) -> Iterator[None]:
    """A page that follows the fast topic, and asks for its figures as often as it does."""
    stop = threading.Event()
    told = threading.Event()

    def read() -> None:
        connection = served.connection()
        connection.request("GET", f"/api/tail?topic={FAST}", headers={"Authorization": f"Bearer {TOKEN}"})
        response = connection.getresponse()
        while response.readline() and not stop.is_set():
            told.set()
        connection.close()

    def ask() -> None:
        while not stop.wait(3.0):
            served.get(f"/api/topic?name={FAST}")

    threads = [threading.Thread(target=each, daemon=True) for each in (read, ask)]
    for thread in threads:
        thread.start()
    try:
        told.wait(30)
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def time_watching(results: Results, server: Server, rounds: int, seconds: float, facts: str) -> None:
    def rate(served: Console) -> tuple[float, float]:
        """Records acknowledged a second, and the microseconds of CPU that all processes took for each."""
        command = [sys.executable, "-c", LOAD, server.bootstrap, FAST, str(seconds)]
        before = cpu_of_all(server, served)
        found = float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        return found, (cpu_of_all(server, served) - before) / (found * seconds) * 1e6

    took: dict[str, list[tuple[float, float]]] = {"unwatched": [], "followed": []}
    with console(server.bootstrap) as served:
        served.get("/api/cluster")
        rate(served)
        shares = []
        for number in range(rounds):
            for name in sorted(took, reverse=number % 2 == 0):
                if name == "followed":
                    with followed(served):
                        began, used = time.monotonic(), served.cpu_s()
                        took[name].append(rate(served))
                        shares.append((served.cpu_s() - used) / (time.monotonic() - began) * 100)
                else:
                    took[name].append(rate(served))
        most = served.megabytes("VmHWM")
        results.add(f"memory while a fast topic is followed, {facts}", "ottla", [most], "MB", goal=MEMORY_MB)
    results.add("a CPU's share that the console takes while a fast topic is followed", "ottla", shares, "%")
    for name, each in took.items():
        results.add("a topic at full speed", name, [rate for rate, _ in each], "records/s")
        results.add("a topic at full speed: CPU of all", name, [cpu for _, cpu in each], "µs/record")
        print(f"at full speed, {name}: {[f'{rate:,.0f}/s {cpu:.2f} µs' for rate, cpu in each]}")
    rates, costs = (
        statistics.median(mine[at] / alone[at] for mine, alone in zip(took["followed"], took["unwatched"], strict=True))
        for at in (0, 1)
    )
    print(
        f"followed / unwatched: rate {rates:.3f}, CPU {costs:.3f}; memory at most {most:.0f} MB,"
        f" {statistics.median(shares):.1f} % of a CPU",
        flush=True,
    )


def cpu_of_all(server: Server, served: Console) -> float:
    """CPU time of the broker, of writers that have ended, and of the console, in seconds."""
    writers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return server.cpu_s() + served.cpu_s() + writers.ru_utime + writers.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--watched-rounds", type=int, default=4)
    parser.add_argument("--watched-s", type=float, default=15.0)
    parser.add_argument("--only-watching", action="store_true", help="leave the pages out")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--results", type=Path, default=FOLDER)
    options = parser.parse_args()
    rounds = 5 if options.quick else options.rounds
    topics = 200 if options.quick else options.topics
    watched = 2 if options.quick else options.watched_rounds
    facts = f"{topics * options.partitions:,} partitions"
    results = Results("console", options.results, is_quick=options.quick)
    try:
        with filled(topics, options.partitions, topics // 10) as server:
            with Admin(server.bootstrap, timeout_s=60) as admin:
                admin.create_topics({FAST: TopicSpec(partitions=4)})
            if not options.only_watching:
                time_pages(results, server.bootstrap, topics, rounds, facts)
            time_watching(results, server, watched, options.watched_s, facts)
    finally:
        results.close()


if __name__ == "__main__":
    main()
