"""How much more `ottla run --workers 2` handles than one worker, where the handler computes.

    python benchmarks/workers.py [--records 3000] [--rounds 3] [--quick] [--results FOLDER]

A record costs about a millisecond of pure Python. It is measured from the first record handled to the last one, with
all partitions assigned before the first is sent. The broker is a process of its own on the same machine. The
program also reports the workers' CPU time per record, which other load on the machine changes less than the rate. If
two workers need as much per record as one, they handle twice as much on two free cores.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from uuid import uuid4

from goals_of_handlers import ONE_WORKER, TWO_WORKERS
from results import Results
from servers import OTTLA, started

from ottla import Producer, TopicSpec
from ottla.admin import Admin

PARTITIONS = 8
SERVICE = """
import os, time
from ottla import App

app = App({topic!r})

@app.handler({topic!r})
def compute(value: bytes) -> None:
    total = 0
    for number in range(20_000):
        total += number * number
    os.write(1, b"%.6f\\n" % time.monotonic())
"""


def measured(servers: str, workers: int, records: int) -> tuple[float, float]:
    """Return the records per second of so many workers, and their CPU by record in milliseconds."""
    topic = f"work-{uuid4().hex[:8]}"
    with Admin(servers) as admin:
        admin.create_topics({topic: TopicSpec(partitions=PARTITIONS)})
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "computing.py").write_text(SERVICE.format(topic=topic))
        command = [sys.executable, "-m", "ottla", "run", "computing:app", "-b", servers, "--health-port", "0"]
        service = subprocess.Popen(
            [*command, "--workers", str(workers)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OTTLA_LOG_LEVEL": "error"},
        )
        assert service.stdout is not None
        assert service.stderr is not None
        found = re.search(r"http://\S+", service.stderr.readline())
        assert found is not None, "it did not start"
        while (pids := pids_of(found[0], workers)) is None:
            time.sleep(0.1)
        before_s = cpu_s(pids)
        with Producer(servers) as producer:
            for number in range(records):
                producer.send(topic, b"x", partition=number % PARTITIONS)
        times = sorted(float(service.stdout.readline()) for _ in range(records))
        taken_s = cpu_s(pids) - before_s
        service.send_signal(signal.SIGTERM)
        service.communicate()
        assert service.returncode == 0
    return (records - 1) / (times[-1] - times[0]), taken_s / records * 1_000


def pids_of(url: str, workers: int) -> list[int] | None:
    """Return the process ids of the workers, when each has its part of the partitions."""
    try:
        with urllib.request.urlopen(url) as response:
            body = json.load(response)
    except urllib.error.HTTPError:
        return None
    counts = [sum(each["worker"] == number for each in body["partitions"]) for number in range(1, workers + 1)]
    is_shared = counts == [PARTITIONS // workers] * workers
    return [each["pid"] for each in body["workers"]] if is_shared else None


def cpu_s(pids: list[int]) -> float:
    """Return the CPU time of all threads of these processes."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def write(results: Results, rates: dict[int, list[float]], cpu_ms: dict[int, list[float]]) -> None:
    """Write the rate and the CPU time of two workers and of one."""
    for workers, contender in ((2, "ottla"), (1, ONE_WORKER)):
        results.add(TWO_WORKERS, contender, rates[workers], "records/s")
        results.add(f"{TWO_WORKERS}, CPU by record", contender, cpu_ms[workers], "ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short round: rough figures")
    parser.add_argument("--results", type=Path, help="the folder for workers.jsonl")
    options = parser.parse_args()
    if options.quick:
        options.records, options.rounds = 1_600, 1
    results = Results("workers", options.results, is_quick=options.quick)
    rates: dict[int, list[float]] = {1: [], 2: []}
    cpu_ms: dict[int, list[float]] = {1: [], 2: []}
    with started("embedded broker", [*OTTLA, "--port", "0"]) as server:
        for _ in range(options.rounds):
            for workers in rates:
                rate, cpu = measured(server.bootstrap, workers, options.records)
                rates[workers].append(rate)
                cpu_ms[workers].append(cpu)
                print(f"{workers} workers {rate:7,.0f} records/s {cpu:6.2f} ms of CPU by record", flush=True)
    ratios = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    print(f"2 workers / 1: {statistics.median(ratios):.2f}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    write(results, rates, cpu_ms)
    results.close()


if __name__ == "__main__":
    main()
