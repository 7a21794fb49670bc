"""How much memory does a service take whose handler is slow, when all of its partitions have a backlog?

    python benchmarks/flow_memory.py [--shell threads|asyncio|columns] [--partitions 60] [--mb 20] [--seconds 30]
                                     [--total-mb 128 | --total-mb 0: as good as no total limit]

A broker in a child process gets `--mb` MiB per partition; the service, in another one, handles one record every 20 ms
(a handler of columns: one batch).
Printed: what the buffers held at most as their owner counts it, and the largest resident set of the service's process
beside the one it had before the first record came.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import servers

HANDLER_S = 0.02
TOPIC = "flow-memory"
RECORD_BYTES = 10_000


def rss_mb() -> float:
    """The resident set of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def fill(bootstrap: str, partitions: int, mb: float) -> None:
    """Every partition gets as much: values that no codec makes smaller."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    value = os.urandom(RECORD_BYTES)
    for number in range(round(mb * 2**20 / RECORD_BYTES) * partitions):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def serve(shell: str, bootstrap: str, seconds: float, total_mb: int) -> None:
    """The service, and a thread that watches it."""
    from ottla import App, FlowLimits

    flow = FlowLimits(total_bytes=total_mb * 2**20, total_records=300_000 if total_mb < 100_000 else 10**9)
    app = App("flow-memory", bootstrap_servers=bootstrap, flow=flow)
    before_mb = 0.0

    def work() -> None:
        nonlocal before_mb
        before_mb = before_mb or rss_mb()
        time.sleep(HANDLER_S)

    if shell == "columns":

        @app.handler(TOPIC, columns=True, max_batch=10)
        def handle_columns(batch: Any) -> None:
            work()
    else:

        @app.handler(TOPIC)
        def handle(value: bytes) -> None:
            work()

    figures: dict[str, Any] = {"buffered_mb": 0.0, "buffered_records": 0, "rss_mb": 0.0}

    def watch() -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            time.sleep(0.1)
            figures["rss_mb"] = max(figures["rss_mb"], rss_mb())
            engines = {} if app._runner is None else app._runner.engines
            for engine in engines.values():
                records, size_bytes = engine._session._flow.buffered
                figures["buffered_records"] = max(figures["buffered_records"], records)
                figures["buffered_mb"] = max(figures["buffered_mb"], size_bytes / 2**20)
        app.stop()

    threading.Thread(target=watch).start()
    if shell == "asyncio":
        asyncio.run(app.serve())
    else:
        app.run(handle_signals=False)
    print(json.dumps({**figures, "rss_before_mb": before_mb}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shell", choices=["threads", "asyncio", "columns"], default="threads")
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--mb", type=float, default=20.0, help="MiB in each partition")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--total-mb", type=int, default=128, help="total_bytes in MiB; 0 for as good as no limit")
    parser.add_argument("--serve", metavar="BOOTSTRAP", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.shell, options.serve, options.seconds, options.total_mb or 1_000_000)
        return
    with servers.started("ottla", [*servers.OTTLA, "--port", "0"]) as broker:
        fill(broker.bootstrap, options.partitions, options.mb)
        child = subprocess.run(
            [sys.executable, __file__, "--serve", broker.bootstrap, *sys.argv[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
    figures = json.loads(child.stdout.splitlines()[-1])
    print(
        f"{options.shell}: {options.partitions} partitions with {options.mb:g} MiB each: "
        f"buffered {figures['buffered_records']:,} records, {figures['buffered_mb']:.0f} MiB; "
        f"resident {figures['rss_mb']:.0f} MiB, {figures['rss_before_mb']:.0f} MiB at the first record"
    )


if __name__ == "__main__":
    main()
