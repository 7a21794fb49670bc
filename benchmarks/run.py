"""The whole measurement: every benchmark in turn, its results in `bench-results/`, and then the page.

    make bench                       everything: it says first how many minutes it takes on a quiet machine
    make bench ONLY=broker QUICK=1   one part, rough figures

This runs in the environment of the peers; what has no Python peers, or needs Spark, runs in Ottla's own (`--python`).
Each part starts its brokers and peers and ends them; a part that takes far too long is ended with all that it started.
Two parts never run at the same time.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from results import BUSY, FOLDER, busy_share

HERE = Path(__file__).resolve().parent
MINUTES = 52
"""What all parts together may take on a quiet machine: the pages say so, and a test adds them up."""

PATIENCE = 4
"""So many times its usual time a part may take."""

ENDING_S = 45.0


@dataclass(frozen=True, slots=True)
class Program:
    """One benchmark: its arguments, the arguments of the quick mode, and the usual seconds of both."""

    name: str
    arguments: tuple[str, ...]
    quick: tuple[str, ...]
    seconds: float
    quick_seconds: float
    is_beside_peers: bool = False


PARTS: dict[str, tuple[Program, ...]] = {
    "broker": (
        Program(
            *("broker.py", ("--rounds", "4", "--seconds", "125", "--scale", "0.5"), ("--quick",), 195, 45),
        ),
        Program("broker_profile.py", (), (), 30, 30),
    ),
    "cluster": (Program("cluster.py", ("--rounds", "3", "--scale", "0.4"), ("--quick",), 100, 40),),
    "sdk": (
        Program(
            *("sdk_producer.py", ("--records", "200000"), ("--records", "60000", "--rounds", "2"), 45, 12),
            is_beside_peers=True,
        ),
        Program(
            *("sdk.py", ("--records", "250000", "--seconds", "80", "--fairness-s", "4"), ("--quick",), 200, 80),
            is_beside_peers=True,
        ),
    ),
    "hot_paths": (
        Program(
            *("hot_paths.py", ("--records", "100000"), ("--rounds", "1", "--records", "40000"), 120, 30),
            is_beside_peers=True,
        ),
        Program("instructions.py", (), (), 60, 60),
    ),
    "columnar": (Program("columnar.py", ("--records", "500000"), ("--rounds", "2", "--records", "200000"), 25, 10),),
    "spark": (
        Program(
            *("spark.py", ("--rounds", "3", "--records", "960000"), ("--rounds", "1", "--records", "480000"), 90, 40),
        ),
    ),
    "connector": (
        Program(
            *(
                "connector.py",
                ("--rounds", "2", "--records", "240000"),
                ("--rounds", "1", "--records", "96000"),
                240,
                90,
            ),
        ),
    ),
    "spark_costs": (
        Program("spark_state.py", (), ("--quick",), 420, 120),
        Program("spark_reading.py", (), ("--quick",), 60, 40),
        Program("spark_batches.py", (), ("--quick",), 90, 50),
        Program("spark_executors.py", (), ("--rounds", "1", "--records", "240000"), 90, 50),
    ),
    "telemetry": (Program("telemetry.py", (), ("--quick",), 115, 30),),
    "messaging": (Program("messaging.py", (), ("--quick",), 120, 30, is_beside_peers=True),),
    "once": (
        Program("effectively_once.py", (), ("--quick",), 20, 8),
        Program(
            *("exactly_once_cost.py", ("--records", "100000", "--rounds", "3"), ("--quick",), 70, 15),
            is_beside_peers=True,
        ),
        Program("outbox_relay.py", ("--rows", "10000", "--rounds", "3"), ("--quick",), 25, 7),
    ),
    "columns": (Program("columns.py", (), ("--quick",), 100, 30, is_beside_peers=True),),
    "growth": (Program("growth.py", ("--rounds", "1"), ("--quick",), 120, 60),),
    "operations": (
        Program("operations.py", ("--rounds", "3"), ("--quick",), 80, 40),
        Program("operations_records.py", ("--rounds", "2", "--records", "200000"), ("--quick",), 110, 60),
        Program(
            *("console.py", ("--rounds", "10", "--watched-rounds", "5", "--watched-s", "8"), ("--quick",), 120, 30),
        ),
    ),
    "planner": (Program("planner.py", (), ("--quick",), 90, 30),),
    "handler_costs": (Program("handler_costs.py", (), ("--quick",), 90, 60),),
    "workers": (Program("workers.py", ("--records", "2000"), ("--quick",), 30, 12),),
    "queues": (Program("queues.py", ("--rounds", "3"), ("--quick",), 140, 40, is_beside_peers=True),),
    "bridge": (Program("bridge.py", (), ("--quick",), 120, 50, is_beside_peers=True),),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(PARTS), nargs="*", default=list(PARTS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--python", default=sys.executable, help="Ottla's own interpreter, with Spark and Arrow")
    parser.add_argument("--results", type=Path, default=FOLDER)
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs", help="where the page goes")
    options = parser.parse_args()
    programs = [program for part in options.only for program in PARTS[part]]
    expected = sum(program.quick_seconds if options.quick else program.seconds for program in programs)
    busy = busy_share()
    print(f"{', '.join(options.only)}: about {expected / 60:.0f} minutes; {busy:.0%} of the CPUs are busy", flush=True)
    if busy > BUSY:
        print("The machine is busy with something else: these will be no figures to publish.", flush=True)
    try:
        failed = [program.name for program in programs if not run(program, options)]
    except KeyboardInterrupt:
        print("stopped: everything that was started has ended")
        return 130
    page = ["--results", str(options.results), "--docs", str(options.docs)]
    rendered = subprocess.run([sys.executable, str(HERE / "render.py"), *page]).returncode
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed or rendered else 0


def run(program: Program, options: argparse.Namespace) -> bool:
    python = sys.executable if program.is_beside_peers else options.python
    arguments = program.quick if options.quick else program.arguments
    seconds = program.quick_seconds if options.quick else program.seconds
    command = [python, str(HERE / program.name), *arguments, "--results", str(options.results)]
    print(f"\n==> {program.name} {' '.join(arguments)} (about {seconds:.0f} s)", flush=True)
    begun = time.monotonic()
    # A session of its own: whatever it started ends with it, also when it is interrupted or has hung.
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(PATIENCE * seconds + 60)
    except subprocess.TimeoutExpired:
        code = None
        print(f"{program.name} did not end within {PATIENCE * seconds + 60:.0f} s", flush=True)
    finally:
        end_session(process)
    print(f"==> {program.name}: {time.monotonic() - begun:.0f} s, exit code {code}", flush=True)
    return code == 0


def end_session(process: subprocess.Popen[bytes]) -> None:
    """First as Ctrl-C would: the program ends what it started, also what has a session of its own."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
