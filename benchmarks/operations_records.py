"""The commands that read and write records, beside kcat and a loop of confluent-kafka.

    python benchmarks/operations_records.py            about ten minutes
    python benchmarks/operations_records.py --quick    about a minute, figures are rough

Each run is a process, started and ended, as a person would; a contender's turns are interleaved with the others'. Rates
are records a second; the share of kcat's is the median of the shares within a round, because neighbours disturb rounds,
not contenders. kcat is measured where it is installed (Debian: `apt-get install kcat`). The broker is Ottla's own, in a
process of its own. Memory is the peak of the process, of which a bare parent is told: a child inherits the peak of the
process that starts it.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer
from results import Results
from servers import OTTLA, Server, started

from ottla.failures.dead_letter import DeadLetterReason, build_dead_letter

LOOP = """
import sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "loop", "enable.auto.commit": False, "log_level": 0})
consumer.assign([TopicPartition(sys.argv[2], 0, 0)])
left = int(sys.argv[3])
while left:
    messages = consumer.consume(10_000, 1)
    sys.stdout.buffer.write(b"".join([message.value() + b"\\n" for message in messages]))
    left -= len(messages)
consumer.close()
"""
BARE_PARENT = """
import resource, subprocess, sys, time
begun = time.perf_counter()
code = subprocess.call(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""
FIELDS = r"%p\t%o\t%T\t%k\t%s\t%h\n"
GOAL_OF_KCAT = 0.3
GOAL_MB = 100.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--results", type=Path, help="the folder for operations_records.jsonl")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    count = options.records // 10 if options.quick else options.records
    letters = options.letters // 10 if options.quick else options.letters
    results = Results("operations_records", options.results, is_quick=options.quick)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-records-")))
        topics = "records,written,by-kcat,copy,dead,origin"
        server = stack.enter_context(started("ottla", [*OTTLA, "--topics", topics]))
        fill(server, "records", count)
        fill_letters(server, letters)
        lines = folder / "lines.txt"
        lines.write_bytes(b"".join(b"k%08d:%b\n" % (number, b"x" * 100) for number in range(count // 4)))
        reading(server, results, rounds, count)
        writing(server, results, rounds, count // 4, lines)
        dead_letters(server, results, letters)
    results.close()


def reading(server: Server, results: Results, rounds: int, count: int) -> None:
    """consume, with values of 100 bytes, to /dev/null."""
    consume = ottla("consume", "records", "-b", server.bootstrap)
    loop = [sys.executable, "-c", LOOP, server.bootstrap, "records", str(count)]
    commands = {
        "values, ottla": [*consume, "--format", r"%s\n"],
        "values, confluent-kafka loop": loop,
        "all fields, ottla (plain)": consume,
        "JSON, ottla": [*consume, "--format", "json"],
        "--where value == null, ottla": [*consume, "--where", "value == null"],
        "--key, ottla": [*consume, "--key", "none"],
    }
    if shutil.which("kcat"):
        kcat = ["kcat", "-b", server.bootstrap, "-C", "-t", "records", "-e", "-q", "-o", "beginning"]
        commands["values, kcat"] = kcat
        commands["all fields, kcat"] = [*kcat, "-f", FIELDS]
        commands["JSON, kcat"] = [*kcat, "-J"]
    rates = measured(commands, rounds, count)
    for name, runs in rates.items():
        note(results, f"consume: {name}", runs, "records/s")
    for what, ours in (
        ("values", "values, ottla"),
        ("all fields", "all fields, ottla (plain)"),
        ("JSON", "JSON, ottla"),
    ):
        share(results, f"consume: {what}", rates[ours], rates.get(f"{what}, kcat"), goal=GOAL_OF_KCAT)


def writing(server: Server, results: Results, rounds: int, count: int, lines: Path) -> None:
    """produce, from a file with keys; and a copy of what was written, through a pipe of JSON."""
    produce = ottla("produce", "written", str(lines), "-b", server.bootstrap, "-K", ":", "-q")
    commands = {"lines, ottla": produce}
    if shutil.which("kcat"):
        commands["lines, kcat"] = ["kcat", "-b", server.bootstrap, "-P", "-t", "by-kcat", "-K", ":", "-l", str(lines)]
    rates = measured(commands, rounds, count)
    for name, runs in rates.items():
        note(results, f"produce: {name}", runs, "records/s")
    share(results, "produce: lines", rates["lines, ottla"], rates.get("lines, kcat"), goal=None)
    source = ottla("consume", "written", "-b", server.bootstrap, "--until", f"0:{count}", "--format", "json")
    begun = time.perf_counter()
    with subprocess.Popen(source, stdout=subprocess.PIPE) as pipe:
        copy = ottla("produce", "copy", "-b", server.bootstrap, "--format", "json", "-q")
        subprocess.run(copy, stdin=pipe.stdout, check=True, stderr=subprocess.DEVNULL)
    note(results, "copy of a topic through JSON", [count / (time.perf_counter() - begun)], "records/s")


def dead_letters(server: Server, results: Results, count: int) -> None:
    """dlq over a topic of letters that are compressed, the hard case for memory."""
    last = f"0:{count - 1}"
    for what, command, of in (
        ("dlq list", ottla("dlq", "list", "dead", "-b", server.bootstrap), count),
        ("dlq show of the last", ottla("dlq", "show", "dead", last, "-b", server.bootstrap), 1),
        ("dlq redrive", ottla("dlq", "redrive", "dead", "-b", server.bootstrap, "--to", "origin"), count),
    ):
        seconds, peak_mb = run(command)
        note(results, f"{what}, {count:,} letters: time", [seconds], "s")
        note(results, f"{what}, {count:,} letters: memory", [peak_mb], "MB", goal=GOAL_MB)
        if of > 1:
            note(results, f"{what}, {count:,} letters: rate", [of / seconds], "letters/s")


def measured(commands: dict[str, list[str]], rounds: int, count: int) -> dict[str, list[float]]:
    """Records a second of each command, round after round; the first round is not counted if there are several."""
    rates: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + (rounds > 1)):
        for name, command in commands.items():
            seconds, _ = run(command)
            if number or rounds == 1:
                rates[name].append(count / seconds)
    return rates


def run(command: Sequence[str]) -> tuple[float, float]:
    """Seconds and megabytes of a process whose output nobody keeps."""
    ended = subprocess.run([sys.executable, "-c", BARE_PARENT, *command], capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}: {ended.returncode}: {ended.stderr}")
    seconds, peak_kb = ended.stdout.split()
    return float(seconds), float(peak_kb) / 1024


def ottla(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ottla", *arguments]


def note(results: Results, what: str, runs: Sequence[float], unit: str, *, goal: float | None = None) -> None:
    results.add(what, "ottla", runs, unit, goal=goal)
    aim = "" if goal is None else f"   goal {goal:g}"
    print(f"{what:60}{statistics.median(runs):14,.2f} {unit}{aim}", flush=True)


def share(
    results: Results, what: str, ours: Sequence[float], kcats: Sequence[float] | None, *, goal: float | None
) -> None:
    if kcats is None:
        results.problem(what, "kcat", "it is not installed")
        return
    results.add(f"{what}: rate", "ottla", ours, "records/s", goal=goal)
    results.add(f"{what}: rate", "kcat", kcats, "records/s")
    shares = [a / b for a, b in zip(ours, kcats, strict=True)]
    print(f"{what + ': share of the rate of kcat':60}{statistics.median(shares):14,.2f}", flush=True)


def fill(server: Server, topic: str, count: int) -> None:
    with_values(server, topic, ((b"k%08d" % number, b"x" * 100, []) for number in range(count)), "none")


def fill_letters(server: Server, count: int) -> None:
    reason = DeadLetterReason(
        kind="failed",
        error_type="ConnectionError",
        message="no answer",
        stack_trace="Traceback: here\n" * 30,
        attempts=5,
        group="billing",
        dead_lettered_ms=1_700_000_000_000,
    )
    letter = build_dead_letter(
        topic="origin", partition=0, offset=0, timestamp_ms=0, key=b"k", value=b"x" * 100, headers=[], reason=reason
    )
    with_values(server, "dead", ((b"k%08d" % n, b"x" * 100, letter.headers) for n in range(count)), "lz4")


def with_values(server: Server, topic: str, records: object, codec: str) -> None:
    settings = {"linger.ms": 50, "batch.size": 500_000, "compression.type": codec, "log_level": 0}
    producer = Producer({"bootstrap.servers": server.bootstrap, "queue.buffering.max.messages": 500_000, **settings})
    for number, (key, value, headers) in enumerate(records):  # type: ignore[arg-type, var-annotated]
        while True:
            try:
                producer.produce(topic, value=value, key=key, headers=headers, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush()


if __name__ == "__main__":
    main()
