"""Ottla's consuming beside what else there is for Python, in one run: rates as ratios, CPU per record, fairness.

    python benchmarks/sdk.py              some five minutes
    python benchmarks/sdk.py --quick      about a minute, figures are rough
    python benchmarks/sdk.py --json       the same figures for a program

Peers are used when they are installed (`benchmarks/peers.txt`), else left out, and the report says so. Everybody
consumes the same topics from the embedded broker, which is a process of its own, each in a process of its own, in turn,
round after round. A ratio is taken within a round, then the median of the rounds with its spread; absolute rates are
those of the machine and of its neighbours. CPU per record counts all threads of the consumer's process and suffers less
from neighbours than rates do.

What each does with a failure differs; here nothing fails. FastStream runs with its default (offsets are committed on a
timer, before the handler ran or failed), and once with NACK_ON_ERROR, which commits per record after the handler.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import tempfile
import time
import uuid
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import sdk_data
import sdk_fairness
from peer_pythons import how_to_install, is_installed, python_of
from results import Results
from sdk_contenders import GROUPS

SLOWER = {
    "faststream[confluent] json": 15,
    "faststream[kafka] json": 10,
    "NACK_ON_ERROR": 60,
    "batch json": 2,
    "kafka-python": 4,
}
"""A part of a name → how many times fewer records it gets, so that a round stays short."""

PACKAGES = {"quixstreams": "quixstreams", "faststream": "faststream", "kafka-python": "kafka"}


@dataclass
class Figures:
    """What one contender did, one entry per round."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    problem: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no round of rates after so many")
    parser.add_argument("--records", type=int, default=400_000, help="records that the fast ones handle per round")
    parser.add_argument("--only", default="", help="only groups whose name has this text; 'fairness' for fairness")
    parser.add_argument("--fairness-s", type=float, default=10, help="seconds of each contender of the fairness runs")
    parser.add_argument("--hot", type=int, nargs="*", default=[1, 4], help="how many hot partitions those have")
    parser.add_argument("--results", type=Path, help="the folder for sdk.jsonl")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    results = Results("sdk", options.results, is_quick=options.quick)
    rounds, records = (1, 150_000) if options.quick else (options.rounds, options.records)
    groups = {name: group for name, group in GROUPS.items() if options.only in name}
    absent = {prefix for prefix, package in PACKAGES.items() if not is_installed(package)}
    say = Say(is_silent=options.json)
    say(f"{versions()}; {rounds} rounds")
    for prefix in sorted(absent):
        say(f"{prefix} is {how_to_install(PACKAGES[prefix])}: left out")
    figures: dict[str, Figures] = {}
    fairness: dict[str, list[sdk_fairness.Fairness]] = {}
    with sdk_data.broker() as bootstrap, tempfile.TemporaryDirectory(prefix="ottla-peers-") as folder:
        os.environ["Quix__Deployment__State__Path"] = folder  # noqa: SIM112  # else it leaves one where one stands
        if groups:
            size = sdk_data.fill(bootstrap, records)
            say(f"{records:,} records of {size} bytes of JSON (or the same as Avro), {sdk_data.PARTITIONS} partitions")
            figures = throughput(bootstrap, groups, absent, rounds, records, options.seconds)
            report_throughput(groups, figures, absent, say)
        if options.only in "fairness":
            seconds, hot = (4.0, [1]) if options.quick else (options.fairness_s, options.hot)
            fairness = all_fairness(bootstrap, absent, seconds, hot, say)
    write(results, figures, fairness, absent)
    if options.json:
        found = {
            "versions": versions(),
            "throughput": {name: asdict(each) for name, each in figures.items()},
            "ratios": {
                f"{ours} / {peer}": ratio_of(figures[ours], figures[peer])
                for ours, peers in groups.values()
                for peer in peers
                if is_measured(figures, ours, peer)
            },
            "fairness": {name: [asdict(each) for each in runs] for name, runs in fairness.items()},
        }
        print(json.dumps(found, indent=2))


def write(
    results: Results,
    figures: dict[str, Figures],
    fairness: dict[str, list[sdk_fairness.Fairness]],
    absent: set[str],
) -> None:
    for name, each in figures.items():
        if each.problem:
            results.problem("consume", name, each.problem)
        results.add("consume", name, [rate / 1000 for rate in each.rates], "k records/s")
        results.add("CPU per record", name, each.cpu_us, "µs")
    for prefix in sorted(absent):
        results.problem("consume", prefix, how_to_install(PACKAGES[prefix]))
    for label, runs in fairness.items():
        what, _, name = label.partition(": ")
        results.add(f"fairness, {what}, wait p50", name, [run.p50_s for run in runs], "s")
        results.add(f"fairness, {what}, longest wait", name, [run.worst_s for run in runs], "s")
        results.add(f"fairness, {what}, rate", name, [run.rate for run in runs], "records/s")
    results.close()


class Say:
    """`print`, unless the output is for a program."""

    def __init__(self, *, is_silent: bool) -> None:
        self._is_silent = is_silent

    def __call__(self, line: str = "") -> None:
        if not self._is_silent:
            print(line, flush=True)


def versions() -> str:
    names = ["ottla", "confluent-kafka", "aiokafka", *PACKAGES]
    installed = {
        each.metadata["Name"].lower(): each.version for each in reversed(list(importlib.metadata.distributions()))
    }
    return ", ".join(f"{name} {installed[name]}" for name in names if name in installed)


# --- rates


def throughput(
    bootstrap: str,
    groups: dict[str, tuple[str, list[str]]],
    absent: set[str],
    rounds: int,
    records: int,
    seconds: float,
) -> dict[str, Figures]:
    names = list(dict.fromkeys(name for ours, peers in groups.values() for name in (ours, *peers)))
    names = [name for name in names if not any(name.startswith(prefix) for prefix in absent)]
    figures: dict[str, Figures] = defaultdict(Figures)
    begun = time.perf_counter()
    for round_number in range(rounds):
        if time.perf_counter() - begun > seconds and round_number:
            break
        # Who comes second finds the machine warmer: the order turns around.
        for name in names if round_number % 2 == 0 else reversed(names):
            if not figures[name].problem:
                run_contender(name, bootstrap, records, figures[name])
    return dict(figures)


def run_contender(name: str, bootstrap: str, records: int, figures: Figures) -> None:
    factor = next((factor for part, factor in sorted(SLOWER.items()) if part in name and "ottla" not in name), 1)
    if "NACK_ON_ERROR" in name:
        factor = SLOWER["NACK_ON_ERROR"]
    topic = sdk_data.AVRO_TOPIC if "avro" in name else sdk_data.JSON_TOPIC
    program = Path(__file__).with_name("sdk_contenders.py")
    command = [python_of(name), str(program), name, bootstrap, topic, str(max(2_000, records // factor))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
        found = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        figures.problem = "did not finish in 90 s"
        return
    except (IndexError, ValueError):
        figures.problem = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return
    figures.rates.append(found["records"] / found["seconds"])
    figures.cpu_us.append(found["cpu_s"] / found["records"] * 1e6)


def is_measured(figures: dict[str, Figures], *names: str) -> bool:
    return all(name in figures and figures[name].rates and not figures[name].problem for name in names)


def ratio_of(ours: Figures, peer: Figures) -> dict[str, Any]:
    ratios = [mine / theirs for mine, theirs in zip(ours.rates, peer.rates, strict=True)]
    cpu = [mine / theirs for mine, theirs in zip(ours.cpu_us, peer.cpu_us, strict=True)]
    return {
        "rate": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "cpu": statistics.median(cpu),
    }


def report_throughput(
    groups: dict[str, tuple[str, list[str]]], figures: dict[str, Figures], absent: set[str], say: Say
) -> None:
    say()
    say("rate ratio = ottla / peer (more is better), lowest and highest of the rounds; CPU ratio: less is better")
    say(f"{'':44}{'ratio':>7} {'[spread]':>14}{'CPU ratio':>11}{'k records/s':>13}{'CPU µs':>9}")
    for title, (ours, peers) in groups.items():
        say()
        if not is_measured(figures, ours):
            say(f"{title}: {ours}: {figures[ours].problem}")
            continue
        say(f"{title:44}{'':33}{_rate(figures[ours]):12.1f}{_cpu(figures[ours]):9.2f}")
        for peer in peers:
            if any(peer.startswith(prefix) for prefix in absent):
                continue
            if not is_measured(figures, peer):
                say(f"  / {peer:40}{figures[peer].problem}")
                continue
            found = ratio_of(figures[ours], figures[peer])
            spread = f"[{found['lowest']:.2f}–{found['highest']:.2f}]"
            say(
                f"  / {peer:40}{found['rate']:7.2f} {spread:>14}{found['cpu']:10.2f} "
                f"{_rate(figures[peer]):12.1f}{_cpu(figures[peer]):9.2f}"
            )


def _rate(figures: Figures) -> float:
    return statistics.median(figures.rates) / 1_000


def _cpu(figures: Figures) -> float:
    return statistics.median(figures.cpu_us)


# --- fairness


def all_fairness(
    bootstrap: str, absent: set[str], seconds: float, hots: list[int], say: Say
) -> dict[str, list[sdk_fairness.Fairness]]:
    backlog = int(seconds * 12_000)
    say()
    say(
        f"fairness: a handler of {sdk_fairness.HANDLER_S * 1_000:g} ms, hot partitions of {sdk_fairness.PARTITIONS} "
        f"with {backlog:,} records each, {1 / sdk_fairness.TRICKLE_S:g} records/s to a quiet one, {seconds:g} s"
    )
    say(f"{'':36}{'wait p50, s':>12}{'longest, s':>12}{'handled':>14}{'all, records/s':>16}")
    found: dict[str, list[sdk_fairness.Fairness]] = defaultdict(list)
    for hot in hots:
        for name in sdk_fairness.CONTENDERS:
            if any(name.startswith(prefix) for prefix in absent):
                continue
            # A topic of its own: nobody finds what an earlier one left.
            topic = f"fair-{uuid.uuid4().hex[:8]}"
            sdk_data.create_topic(bootstrap, topic, sdk_fairness.PARTITIONS)
            sdk_fairness.fill(bootstrap, topic, hot=hot, records=backlog)
            label = f"{hot} hot: {name}"
            try:
                seen = sdk_fairness.measure(name, bootstrap, topic, seconds)
            except RuntimeError as error:
                say(f"{label:36}{error}")
                continue
            found[label].append(seen)
            handled = f"{seen.handled} of {seen.sent}"
            say(f"{label:36}{seen.p50_s:12.3f}{seen.worst_s:12.3f}{handled:>14}{seen.rate:16,.0f}")
    return dict(found)


if __name__ == "__main__":
    main()
