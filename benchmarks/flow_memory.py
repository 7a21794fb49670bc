"""How much memory does a service take whose handler is slow, when all of its partitions have a backlog?

    python benchmarks/flow_memory.py [--shell threads|asyncio|columns] [--partitions 60] [--mb 20] [--seconds 30]
                                     [--headers] [--total-mb 128 | --total-mb 0: as good as no total limit]

A broker in a child process gets `--mb` MiB per partition, in values, or with `--headers` in a header of each record;
the service, in another one, handles one record every 20 ms (a handler of columns: one batch).
Printed: what the buffers held at most as their owner counts it, and the largest resident set of the service's process
beside the one it had before, when it had handled a record of another topic.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import servers

HANDLER_S = 0.02
TOPIC = "flow-memory"
WARM = "flow-memory-warm"
RECORD_BYTES = 10_000


def rss_mb() -> float:
    """The resident set of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def fill(bootstrap: str, partitions: int, mb: float, *, in_headers: bool) -> None:
    """Every partition gets as much, that no codec makes smaller."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(TOPIC, partitions, 1), NewTopic(WARM, 1, 1)]).values():
        created.result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    load = os.urandom(RECORD_BYTES)
    value, headers = (b"v", [("load", load)]) if in_headers else (load, [])
    producer.produce(WARM, value)
    for number in range(round(mb * 2**20 / RECORD_BYTES) * partitions):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % partitions, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def handle(app: Any, topic: str, shell: str, work: Callable[[], None]) -> None:
    """Have the topic handled until the app is stopped."""
    if shell == "columns":

        @app.handler(topic, columns=True, max_batch=10)
        def of_columns(batch: Any) -> None:
            work()
    else:

        @app.handler(topic)
        def of_record(value: bytes) -> None:
            work()

    if shell == "asyncio":
        asyncio.run(app.serve())
    else:
        app.run(handle_signals=False)


def serve(shell: str, bootstrap: str, seconds: float, total_mb: int) -> None:
    """The service, and a thread that watches it. Before that it handles one record, for all to be imported."""
    from ottla import App, FlowLimits

    warm = App(WARM, bootstrap_servers=bootstrap)
    handle(warm, WARM, shell, warm.stop)
    flow = FlowLimits(total_bytes=total_mb * 2**20, total_records=300_000 if total_mb < 100_000 else 10**9)
    app = App("flow-memory", bootstrap_servers=bootstrap, flow=flow)
    figures: dict[str, Any] = {"buffered_mb": 0.0, "buffered_records": 0, "rss_mb": 0.0, "rss_before_mb": rss_mb()}

    def watch() -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            time.sleep(0.05)
            figures["rss_mb"] = max(figures["rss_mb"], rss_mb())
            members = {} if app._runner is None else app._runner.members
            for engine in members.values():
                records, size_bytes = engine._session._flow.buffered
                figures["buffered_records"] = max(figures["buffered_records"], records)
                figures["buffered_mb"] = max(figures["buffered_mb"], size_bytes / 2**20)
        app.stop()

    threading.Thread(target=watch).start()
    handle(app, TOPIC, shell, lambda: time.sleep(HANDLER_S))
    print(json.dumps(figures))


def measured(
    shell: str, *, partitions: int, mb: float, seconds: float, total_mb: int, in_headers: bool = False
) -> dict[str, float]:
    """`buffered_records`, `buffered_mb`, `rss_mb` and `rss_before_mb` of a service, after `seconds`."""
    with servers.started("ottla", [*servers.OTTLA, "--port", "0"]) as broker:
        fill(broker.bootstrap, partitions, mb, in_headers=in_headers)
        own = ["--shell", shell, "--seconds", str(seconds), "--total-mb", str(total_mb)]
        child = subprocess.run(
            [sys.executable, __file__, "--serve", broker.bootstrap, *own],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
    found: dict[str, float] = json.loads(child.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shell", choices=["threads", "asyncio", "columns"], default="threads")
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--mb", type=float, default=20.0, help="MiB in each partition")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--headers", action="store_true", help="10 KB in a header of each record, not in its value")
    parser.add_argument("--total-mb", type=int, default=128, help="total_bytes in MiB; 0 for as good as no limit")
    parser.add_argument("--serve", metavar="BOOTSTRAP", help=argparse.SUPPRESS)
    options = parser.parse_args()
    total_mb = options.total_mb or 1_000_000
    if options.serve:
        serve(options.shell, options.serve, options.seconds, total_mb)
        return
    figures = measured(
        options.shell,
        partitions=options.partitions,
        mb=options.mb,
        seconds=options.seconds,
        total_mb=total_mb,
        in_headers=options.headers,
    )
    print(
        f"{options.shell}: {options.partitions} partitions with {options.mb:g} MiB each: "
        f"buffered {figures['buffered_records']:,} records, {figures['buffered_mb']:.0f} MiB; "
        f"resident {figures['rss_mb']:.0f} MiB, {figures['rss_before_mb']:.0f} MiB before"
    )


if __name__ == "__main__":
    main()
