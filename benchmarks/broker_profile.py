"""Where the broker's CPU time goes: small requests, large produces, large fetches; kernel or Python, and which Python.

    python benchmarks/broker_profile.py [--results bench-results]

Each load runs twice against a broker in a child process: once as it is, for the share of the kernel (from /proc, so it
needs Linux), and once under cProfile, for the share of each function. cProfile makes Python calls dearer than they
are; its column says where the time goes, not how much there is.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pstats
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from results import Results

from ottla_wire.protocol import ApiKey, headers
from ottla_wire.records.record import RecordData, encode_batch

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SHOWN = 8

PROFILED = """
import cProfile, sys
from broker_embedded.__main__ import main
profile = cProfile.Profile()
profile.runcall(main, sys.argv[2:])
profile.dump_stats(sys.argv[1])
"""


@contextlib.contextmanager
def broker(*, profile: Path | None = None) -> Iterator[tuple[str, int]]:
    """Bootstrap address and process id; with `profile`, written when the broker ends."""
    command = ["-m", "broker_embedded"] if profile is None else ["-c", PROFILED, str(profile)]
    process = subprocess.Popen(
        [sys.executable, *command, "--log-level", "error"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        bootstrap = process.stdout.readline().strip().removeprefix("ready bootstrap=")
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for created in admin.create_topics([NewTopic("load", 1, 1)]).values():
            created.result(10)
        yield bootstrap, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def produce_frame(value_bytes: int) -> bytes:
    record = RecordData(0, int(time.time() * 1000), None, os.urandom(value_bytes), ())
    data = [{"name": "load", "partition_data": [{"index": 0, "records": bytes(encode_batch([record]))}]}]
    body = {"acks": -1, "timeout_ms": 5000, "topic_data": data}
    return headers.encode_request_frame(ApiKey.PRODUCE, 7, 1, "load", body)


def fetch_frame() -> bytes:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_048_576}
    body = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 30,
        "topics": [{"topic": "load", "partitions": [partition]}],
    }
    return headers.encode_request_frame(ApiKey.FETCH, 7, 1, "load", body)


def run(bootstrap: str, frame: bytes, count: int, pipelined: int) -> None:
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count // pipelined):
            client.sendall(frame * pipelined)
            for _ in range(pipelined):
                client.recv(int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big"), socket.MSG_WAITALL)


def cpu_s(pid: int) -> tuple[float, float]:
    """CPU seconds (in Python and its C code, in the kernel)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / TICKS_PER_S, int(fields[12]) / TICKS_PER_S


def measure(
    results: Results, name: str, frame: bytes, count: int, pipelined: int, *, before: Callable[[str], None]
) -> None:
    with broker() as (bootstrap, pid):
        before(bootstrap)
        user, system = cpu_s(pid)
        run(bootstrap, frame, count, pipelined)
        user, system = (after - first for after, first in zip(cpu_s(pid), (user, system), strict=True))
    total = user + system
    results.add(f"{name}, CPU time", "ottla", [total / count * 1e6], "µs each")
    results.add(f"{name}, in the kernel", "ottla", [system / total * 100], "% of it")
    print(f"\n{name}: {total / count * 1e6:.0f} µs of CPU each, {system / total:.0%} in the kernel")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile"
        with broker(profile=path) as (bootstrap, _):
            before(bootstrap)
            run(bootstrap, frame, count, pipelined)
        stats = pstats.Stats(str(path))
    rows = [
        (own, calls, f"{Path(file).name}:{function}" if line else function)
        for (file, line, function), (_, calls, own, _, _) in stats.stats.items()  # type: ignore[attr-defined]
        if "poll" not in function
    ]
    whole = sum(own for own, _, _ in rows)
    for own, calls, function in sorted(rows, reverse=True)[:SHOWN]:
        results.add(f"{name}, in {function}", "ottla", [own / whole * 100], "% of its Python")
        print(f"  {own / whole:6.1%}  {calls / count:5.1f} calls each  {function}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="the folder for profile.jsonl")
    results = Results("profile", parser.parse_args().results)
    large = produce_frame(1_000_000)
    measure(results, "Produce of 200 bytes", produce_frame(130), 40_000, 50, before=lambda _: None)
    measure(results, "Produce of 1 MB", large, 1_000, 1, before=lambda _: None)
    measure(results, "Fetch of 1 MB", fetch_frame(), 2_000, 1, before=lambda bootstrap: run(bootstrap, large, 3, 1))
    results.close()


if __name__ == "__main__":
    main()
