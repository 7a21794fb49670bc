"""Measures the CPU time and memory of `ottla exporter` on a cluster of 10,000 partitions and 1,000 groups.

    python benchmarks/exporter.py [--intervals 6] [--every 10] [--partitions]

One embedded broker with 1,000 topics of 10 partitions, each with records and a group that has committed on all of its
partitions, every tenth group at the start of its topic. The exporter is a process of its own and is scraped twice in
each interval. It reports the CPU time of that process between two scrapes, and its largest resident set. The load of
the machine is printed, as it is where others work.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
import urllib.request
from pathlib import Path

from operations import COMMAND, filled

from ottla import Producer
from ottla.admin import Admin

TOPICS, PARTITIONS = 1_000, 10
CORE_SHARE, MEMORY_MB = 0.05, 120.0


def fill(bootstrap: str) -> None:
    names = [f"orders-{number:04}" for number in range(TOPICS)]
    with Producer(bootstrap) as producer:
        for name in names:
            for partition in range(PARTITIONS):
                producer.send_many(name, [(b"order",)] * 3, partition=partition)
    with Admin(bootstrap, timeout_s=300) as admin:
        for number, name in enumerate(names):
            to = "latest" if number % 10 else "earliest"
            admin.apply_reset(admin.plan_reset(f"group-{number:04}", to=to, topics={name: None}))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", type=int, default=6)
    parser.add_argument("--every", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--partitions", action="store_true")
    chosen = parser.parse_args()
    with filled(TOPICS, PARTITIONS, 1) as server:
        fill(server.bootstrap)
        more = ["--partitions"] if chosen.partitions else []
        process = subprocess.Popen(
            [*COMMAND, "exporter", "-b", server.bootstrap, "--port", "0", "--every", f"{chosen.every:g}s", *more],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            address = process.stderr.readline().split()[-1]
            before_s, at_s = 0.0, time.monotonic()
            for number in range(chosen.intervals):
                for _ in range(2):
                    time.sleep(chosen.every / 2)
                    scraped = urllib.request.urlopen(address, timeout=60).read()
                used_s, now_s = cpu_s(process.pid), time.monotonic()
                print(
                    f"interval {number}: {used_s - before_s:.2f} s CPU, {(used_s - before_s) / (now_s - at_s):.1%} of a"
                    f" core (goal {CORE_SHARE:.0%}), {peak_mb(process.pid):.0f} MB (goal {MEMORY_MB:.0f}),"
                    f" {len(scraped):,} bytes, load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
                before_s, at_s = used_s, now_s
        finally:
            process.terminate()
            process.communicate(timeout=30)


if __name__ == "__main__":
    main()
