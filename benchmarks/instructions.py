"""Counts the instructions that the broker executes for one Produce and for one Fetch, under valgrind's cachegrind.

    python benchmarks/instructions.py [--results bench-results]

A count hardly depends on what else the machine does, so it guards against regressions where times cannot. It is the
count with many requests minus the count with few, divided by the difference: the start of the process cancels out. What
the broker does by the clock counts too, and is a part of it when a run takes long: so the least of two counts is taken.
Only the process's own instructions count, not the kernel's. Needs valgrind.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from broker_profile import fetch_frame, produce_frame, run
from confluent_kafka.admin import AdminClient, NewTopic
from results import Results

FEW, MANY, ROUNDS = 100, 500, 2


def instructions(count: int, load: Callable[[str, int], None]) -> int:
    """Return how many instructions a broker executes, from its start to its end, that gets `count` requests."""
    with tempfile.TemporaryDirectory() as folder:
        counted = Path(folder) / "counted"
        valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={counted}"]
        process = subprocess.Popen(
            [*valgrind, sys.executable, "-m", "broker_embedded", "--log-level", "error"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"},
        )
        try:
            assert process.stdout is not None
            bootstrap = process.stdout.readline().strip().removeprefix("ready bootstrap=")
            admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 60_000})
            for created in admin.create_topics([NewTopic("load", 1, 1)], request_timeout=60).values():
                created.result(60)
            run(bootstrap, produce_frame(130), 10, 1)  # something to fetch
            del admin
            load(bootstrap, count)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)
        summary = next(line for line in reversed(counted.read_text().splitlines()) if line.startswith("summary:"))
    return int(summary.split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="the folder for instructions.jsonl")
    results = Results("instructions", parser.parse_args().results)
    produce, fetch = produce_frame(130), fetch_frame()
    loads: dict[str, Callable[[str, int], None]] = {
        "Produce of 200 bytes": lambda bootstrap, count: run(bootstrap, produce, count, 1),
        "Fetch of ten records": lambda bootstrap, count: run(bootstrap, fetch, count, 1),
    }
    for name, load in loads.items():
        if shutil.which("valgrind") is None:
            results.problem(f"{name}, instructions", "ottla", "valgrind is not installed")
            print(f"{name}: not measured, valgrind is not installed")
            continue
        each = min((instructions(MANY, load) - instructions(FEW, load)) / (MANY - FEW) for _ in range(ROUNDS))
        results.add(f"{name}, instructions", "ottla", [each], "instructions each")
        print(f"{name}: {each:,.0f} instructions each")
    results.close()


if __name__ == "__main__":
    main()
