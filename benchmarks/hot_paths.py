"""Measures the CPU time per record, by thread, of programs on Ottla and of the same programs on the client alone.

    python benchmarks/hot_paths.py [--rounds 3] [--records 200000] [--only TEXT] [--beside FOLDER] [--results FOLDER]

Each contender runs in a process of its own; all take turns on one embedded broker, for several rounds. CPU time is
the sum over the threads of the process after the warm-up; a busy machine changes it less than it changes rates. A
ratio divides the client's CPU time by Ottla's in the same round: 1 means as cheap as the client. The client's loop
calls a function with each message, as a handler is called, or with each batch. The median over the rounds is shown.
`+h` marks records with two headers. `--beside` names another checkout: its Ottla runs in the same rounds, shown as
`NAME (beside)`. The longest pause is the longest garbage collection, during which all threads stop.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path
from typing import Any

import sdk_data
from goals_of_hot_paths import CPU, CPU_RATIO, PAUSE, TIME, TIME_RATIO
from hot_paths_contenders import BY_NAME, HEADERS, PARTITIONS, RAW_OF, Contender
from peer_pythons import how_to_install, is_installed, python_of
from results import Results

PACKAGES = {"quixstreams": "quixstreams"}
TOPICS = {"": (), "-h": HEADERS}
"""The end of a topic's name → the headers of its records."""


def fill(bootstrap: str, records: int) -> None:
    """Make the topics that are read, without headers and with two, and those that are written."""
    from confluent_kafka import Producer

    for end, headers in TOPICS.items():
        sdk_data.create_topic(bootstrap, f"read{end}", PARTITIONS)
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "none"})
        for number in range(records):
            value = b'{"id": %d, "user": "user-%06d", "amount": 10.25, "status": "paid", "note": "%032d"}' % (
                number,
                number % 1_000,
                number,
            )
            while True:
                try:
                    producer.produce(f"read{end}", value, b"%08d" % number, number % PARTITIONS, headers=list(headers))
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(120):
            raise SystemExit("the topic could not be filled")
    sdk_data.create_topic(bootstrap, "written", PARTITIONS)


def measured(contender: Contender, bootstrap: str, records: int, source: Path | None) -> dict[str, Any]:
    """Return the figures of one contender in a process of its own, or `{"problem": ...}`."""
    program = Path(__file__).with_name("hot_paths_contenders.py")
    command = [python_of(contender.name), str(program), contender.name, bootstrap, str(records // contender.slower)]
    environment = dict(os.environ)
    if source is not None:
        environment["PYTHONPATH"] = str(source / "src")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    except subprocess.TimeoutExpired:
        return {"problem": "did not finish in 120 s"}
    except (IndexError, ValueError):
        return {"problem": (done.stderr.strip().splitlines() or ["no output"])[-1]}


def ratios(rounds: list[dict[str, Any]], raw: list[dict[str, Any]], figure: str) -> list[float]:
    """Return the raw client's cost divided by Ottla's, of each round that has both."""
    pairs = zip(rounds, raw, strict=False)
    return [theirs[figure] / ours[figure] for ours, theirs in pairs if figure in ours and figure in theirs]


def report(found: dict[str, list[dict[str, Any]]], results: Results) -> None:
    """Print a line for each contender, and keep its figures."""
    print(f"{'':34}{'CPU µs':>8}{'raw/it':>8}{'wall µs':>9}{'raw/it':>8}{'pause ms':>10}  by thread, µs")
    for name, rounds in found.items():
        good = [each for each in rounds if "problem" not in each]
        if not good:
            print(f"{name:34}{rounds[0]['problem']}")
            results.problem(CPU, name, rounds[0]["problem"])
            continue
        raw = found.get(RAW_OF.get(name.removesuffix(" (beside)"), ""), [])
        of_cpu, of_wall = ratios(rounds, raw, "cpu_us"), ratios(rounds, raw, "wall_us")
        cells = [f"{statistics.median(each):.2f}" if each else "" for each in (of_cpu, of_wall)]
        cpu, wall, pause = (
            statistics.median(each[key] for each in good) for key in ("cpu_us", "wall_us", "longest_pause_ms")
        )
        threads = {
            thread: statistics.median(each["threads"].get(thread, 0.0) for each in good)
            for thread in good[0]["threads"]
        }
        by_thread = ", ".join(f"{thread} {us:.2f}" for thread, us in threads.items() if us >= 0.05)
        print(f"{name:34}{cpu:8.2f}{cells[0]:>8}{wall:9.2f}{cells[1]:>8}{pause:10.1f}  {by_thread}")
        results.add(CPU, name, [each["cpu_us"] for each in good], "µs per record")
        results.add(CPU_RATIO, name, of_cpu, "")
        results.add(TIME, name, [each["wall_us"] for each in good], "µs per record")
        results.add(TIME_RATIO, name, of_wall, "")
        results.add(PAUSE, name, [each["longest_pause_ms"] for each in good], "ms")
        for thread, us in threads.items():
            results.add(f"CPU of {thread}", name, [us], "µs per record")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--only", default="", help="contenders whose names have one of these texts, divided by commas")
    parser.add_argument("--beside", type=Path, help="another checkout, to compare with")
    parser.add_argument("--results", type=Path, help="the folder for hot_paths.jsonl")
    options = parser.parse_args()
    results = Results("hot_paths", options.results)
    wanted = options.only.split(",")
    chosen = [each for each in BY_NAME.values() if any(text in each.name for text in wanted)]
    names = {each.name for each in chosen} | {RAW_OF[each.name] for each in chosen if each.name in RAW_OF}
    runs: list[tuple[str, Contender, Path | None]] = []
    for each in BY_NAME.values():
        if each.name in names:
            runs.append((each.name, each, None))
            if options.beside is not None and each.name.startswith("ottla"):
                runs.append((f"{each.name} (beside)", each, options.beside))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name, _, _ in runs}
    absent = {name for name, package in PACKAGES.items() if not is_installed(package)}
    with sdk_data.broker() as bootstrap:
        fill(bootstrap, options.records)
        for round_number in range(options.rounds):
            # Who comes second finds the machine warmer: the order turns around.
            for name, contender, source in runs if round_number % 2 == 0 else reversed(runs):
                if any(name.startswith(package) for package in absent):
                    found[name].append({"problem": how_to_install(name.partition(":")[0])})
                else:
                    found[name].append(measured(contender, bootstrap, options.records, source))
    report(found, results)
    results.close()


if __name__ == "__main__":
    main()
