"""What a person waits for at the command line: help, lists, lag, the doctor, an address where nobody is.

    python benchmarks/operations.py [--rounds 7] [--topics 1000] [--partitions 10]

Each command is a process of its own, from its start to its end, on one embedded broker with 1,000 topics of 10
partitions. Peers: Kafka's own scripts (their Java classes, without the shell around them) where Java and Maven are, and
franz-go's administration client (`peers/kadm`), where Go is, and kcl, a whole program on that client, where a
`kcl` is on the PATH. Memory is the largest resident set; the operating system counts what this program had when it
started the process, some 30 MB, as the least.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from compiled import CompiledModules
from results import FOLDER, Results
from servers import OTTLA, Server, started

from ottla.admin import Admin, TopicSpec

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))

from apache_kafka import Unavailable, tools  # noqa: E402

COMMAND = (str(Path(sys.executable).with_name("ottla")),)
"""What a person types: `python -m` takes longer to start."""
GROUP = "readers"
AT_ONCE = 100
HELP_S, DEAD_S, CREATED_S, DOCTOR_S, DOCTOR_MB = 0.15, 1.0, 10.0, 5.0, 150.0


@dataclass(frozen=True, slots=True)
class Run:
    """One process: how long it took, its CPU time, the most memory it had, how it ended, how many lines it printed."""

    seconds: float
    cpu_s: float
    megabytes: float
    code: int
    lines: int


def run(command: Sequence[str], environment: Mapping[str, str]) -> Run:
    with tempfile.TemporaryFile() as printed:
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        return Run(
            seconds,
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss / 1024,
            process.returncode,
            printed.read().count(b"\n"),
        )


@contextmanager
def filled(topics: int, partitions: int, groups_on: int, *, results: Results | None = None) -> Iterator[Server]:
    """A broker with topics, and a group that has committed on the first `groups_on` of them."""
    names = [f"orders-{number:04}" for number in range(topics)]
    with started("ottla", [*OTTLA]) as server, Admin(server.bootstrap, timeout_s=300) as admin:
        begun = time.perf_counter()
        for first in range(0, topics, AT_ONCE):
            admin.create_topics(dict.fromkeys(names[first : first + AT_ONCE], TopicSpec(partitions=partitions)))
        seconds = time.perf_counter() - begun
        if results is not None:
            results.add(f"{topics * partitions:,} partitions created", "ottla", [seconds], "s", goal=CREATED_S)
        print(f"{topics:,} topics of {partitions} partitions created in {seconds:.1f} s", flush=True)
        admin.apply_reset(admin.plan_reset(GROUP, to="earliest", topics=dict.fromkeys(names[:groups_on])))
        yield server


def peers(bootstrap: str, folder: Path) -> dict[str, dict[str, list[str]]]:
    """Contender → what → command."""
    found: dict[str, dict[str, list[str]]] = {}
    kadm = folder / "kadm"
    if shutil.which("go") is None:
        print("franz-go is left out: Go is not installed")
    else:
        built = subprocess.run(
            ["go", "build", "-o", str(kadm), "."], cwd=HERE / "peers" / "kadm", capture_output=True, text=True
        )
        if built.returncode:
            print(f"franz-go is left out: {built.stderr.strip()[-300:]}")
        else:
            found["franz-go"] = {
                "topics list": [str(kadm), bootstrap, "topics"],
                "groups lag": [str(kadm), bootstrap, "lag", GROUP],
            }
    kcl = shutil.which("kcl")
    if kcl is None:
        print("kcl is left out: it is not on the PATH")
    else:
        at_server = [kcl, "--no-config-file", "-B", bootstrap]
        found["kcl"] = {
            "topics list": [*at_server, "topic", "list"],
            "groups lag": [*at_server, "group", "describe", GROUP],
        }
    try:
        java = ["java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{tools()}/*"]
    except Unavailable as error:
        print(f"Kafka's scripts are left out: {error}")
    else:
        package, at = "org.apache.kafka.tools", ["--bootstrap-server", bootstrap]
        groups = f"{package}.consumer.group.ConsumerGroupCommand"
        found["kafka"] = {
            "topics list": [*java, f"{package}.TopicCommand", *at, "--list"],
            "groups lag": [*java, groups, *at, "--describe", "--group", GROUP],
        }
    return found


def measure(
    results: Results,
    what: str,
    contenders: dict[str, list[str]],
    rounds: int,
    *,
    environment: Mapping[str, str],
    codes: Sequence[int],
    goal: float | None,
) -> dict[str, list[Run]]:
    """Every contender in turn, round by round, so that what else the machine does meets all of them."""
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, command in contenders.items():
            done = run(command, environment)
            if done.code not in codes:
                raise SystemExit(f"{what}: {name} ended with {done.code}: {' '.join(command)}")
            if number:  # the first round fills caches
                runs[name].append(done)
    for name, each in runs.items():
        seconds = [one.seconds for one in each]
        results.add(what, name, seconds, "s", goal=goal if name == "ottla" else None)
        results.add(f"{what}: CPU", name, [one.cpu_s for one in each], "s")
        results.add(f"{what}: memory", name, [one.megabytes for one in each], "MB")
        print(
            f"{what:<34} {name:<9} {statistics.median(seconds):7.3f} s (best {min(seconds):.3f})"
            f" {statistics.median(one.cpu_s for one in each):6.3f} s CPU"
            f" {statistics.median(one.megabytes for one in each):6.0f} MB {each[0].lines:>7,} lines",
            flush=True,
        )
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--results", type=Path, default=FOLDER)
    options = parser.parse_args()
    rounds = 2 if options.quick else options.rounds
    topics = 200 if options.quick else options.topics
    results = Results("operations", options.results, is_quick=options.quick)

    try:
        with tempfile.TemporaryDirectory(prefix="ottla-compiled-") as folder:
            measured(results, options.partitions, topics, rounds, CompiledModules(Path(folder)).as_installed())
    finally:
        results.close()


def measured(results: Results, partitions: int, topics: int, rounds: int, environment: Mapping[str, str]) -> None:
    """All of it. Commands find their modules compiled, as after `pip install`: `environment` sees to that."""

    def ours(*arguments: str) -> list[str]:
        return [*COMMAND, *arguments]

    one: Callable[..., dict[str, list[Run]]] = partial(measure, environment=environment)
    one(results, "help", {"ottla": ours("--help")}, rounds, codes=(0,), goal=HELP_S)
    one(results, "help of topics", {"ottla": ours("topics", "--help")}, rounds, codes=(0,), goal=HELP_S)
    dead = {"ottla": ours("topics", "list", "-b", "127.0.0.1:1")}
    one(results, "a dead address", dead, rounds, codes=(2,), goal=DEAD_S)
    with filled(topics, partitions, topics // 10, results=results) as server, tempfile.TemporaryDirectory() as folder:
        at = ("-b", server.bootstrap)
        others = peers(server.bootstrap, Path(folder))
        for what, arguments in (("topics list", ("topics", "list")), ("groups lag", ("groups", "lag", GROUP))):
            contenders = {"ottla": ours(*arguments, *at)} | {name: each[what] for name, each in others.items()}
            one(results, what, contenders, rounds, codes=(0,), goal=None)
        doctor = {"ottla": ours("doctor", "--format", "json", *at)}
        name = f"doctor, {topics * partitions:,} partitions"
        found = one(results, name, doctor, max(2, rounds // 2), codes=(0, 1), goal=DOCTOR_S)["ottla"]
        most = max(each.megabytes for each in found)
        results.add(f"{name}: most memory", "ottla", [most], "MB", goal=DOCTOR_MB)
        print(f"doctor: at most {most:.0f} MB, wanted {DOCTOR_MB:.0f}")


if __name__ == "__main__":
    main()
