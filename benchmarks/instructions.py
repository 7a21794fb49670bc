"""Counts the instructions that the broker executes for one Produce and for one Fetch, under valgrind's cachegrind.

    python benchmarks/instructions.py [--results bench-results]

Other programs of the machine hardly change the count, so it shows regressions that times hide. The count with many
requests minus the count with few, divided by the difference in requests, leaves out the start of the process. Timers of
the broker add instructions to a run that takes long, so each count is the lower of two. The kernel's instructions are
not counted. Needs valgrind.
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
from goals_of_hot_paths import INSTRUCTIONS
from results import Results

FEW, MANY, ROUNDS = 100, 500, 2


def instructions(count: int, load: Callable[[str, int], None]) -> int:
    """Return the instructions of a broker from its start to its stop, with `count` requests in between."""
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
    has_valgrind = shutil.which("valgrind") is not None
    for name, load in loads.items():
        if not has_valgrind:
            results.problem(name, "ottla", "valgrind is not installed")
            print(f"{name}: not measured, valgrind is not installed")
            continue
        few, many = (min(instructions(count, load) for _ in range(ROUNDS)) for count in (FEW, MANY))
        each = (many - few) / (MANY - FEW)
        results.add(name, "ottla", [each], "instructions", goal=INSTRUCTIONS[name])
        print(f"{name}: {each:,.0f} instructions each")
    results.close()


if __name__ == "__main__":
    main()
