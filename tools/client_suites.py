"""Run a client's own integration tests against the embedded broker, and print how many pass.

    python tools/client_suites.py librdkafka --source ~/src/librdkafka [--protocol consumer] [--only 0012 0045]
    python tools/client_suites.py aiokafka --source ~/src/aiokafka --python ~/src/aiokafka/venv/bin/python
    python tools/client_suites.py kafka-python --source ~/src/kafka-python --python ~/src/kafka-python/venv/bin/python
    python tools/client_suites.py confluent-kafka --source ~/src/confluent-kafka-python --python ~/venv/bin/python

`--source` is a checkout of the client, made ready for its tests as its own documentation says: librdkafka with
tests/test-runner, the Python clients with their test requirements installed for `--python`. Nothing of theirs is
kept here. Tests of librdkafka run number by number, each against a cluster of its own, so that no failure spoils what
follows; tests that need no broker are left out. docs/reference/differences.md says what the remaining failures mean.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from aiokafka_fixtures import ADDRESS
from apache_kafka import Unavailable, tools

from broker_embedded.cluster import EmbeddedCluster

KAFKA_VERSION = "4.1.0"
"""What the broker is in the eyes of a suite that asks."""
SHARES, SHARES_VERSION = "_share_consumer", "4.2.0"
QUICK_SHARES = {
    "group.share.min.heartbeat.interval.ms": 500,
    "group.share.heartbeat.interval.ms": 500,
    "group.share.min.session.timeout.ms": 1000,
}
ANY_LOCKS = {"group.share.min.record.lock.duration.ms": 1000}
"""Tests of librdkafka set the locks of their groups to three seconds; Kafka's least is 15."""
SHORT_LOCKS = {**ANY_LOCKS, "group.share.record.lock.duration.ms": 1000}
"""What tests of confluent-kafka wait for. Those of librdkafka take longer than that between two polls."""
PATIENCE = 3
"""How many times the runner's own limit a test of librdkafka may take: 0170 has 20 parts, and a limit of 150 s."""
NO_AUTO_CREATE = "noautocreate"
ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}
"""Everybody may do everything, until a test says otherwise."""
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
KAFKA_SCRIPTS = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-run-class.sh": "",  # of the programs in tests/java, which `make -C tests/java` builds
}
"""What tests of librdkafka call of Apache Kafka, and the class behind it."""
_ESCAPES = re.compile(r"\x1b\[\d+m")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one test: passed, failed or skipped."""

    name: str
    outcome: str


# --- librdkafka


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerTest:
    """A test of librdkafka's test-runner that needs a broker."""

    name: str
    scenario: str

    @property
    def number(self) -> str:
        return self.name[:4]


def runner_tests(source: Path) -> list[RunnerTest]:
    """The tests that need a broker, read from the runner's own table."""
    text = (source / "tests" / "test.c").read_text(encoding="utf-8")
    table = text[text.index("struct test tests[] = {") :].partition("{NULL}")[0]
    found = []
    for entry in table.split("_TEST(")[1:]:
        name = entry.partition(",")[0].strip()
        is_wanted = "TEST_F_LOCAL" not in entry and "TEST_F_MANUAL" not in entry
        if re.match(r"\d{4}_", name) and is_wanted:
            found.append(RunnerTest(name=name, scenario=NO_AUTO_CREATE if NO_AUTO_CREATE in entry else "default"))
    return found


def librdkafka(source: Path, *, protocol: str, only: Sequence[str], timeout_s: float) -> Iterator[Result]:
    tests = [test for test in runner_tests(source) if not only or test.number in only]
    for number, scenario in dict.fromkeys((test.number, test.scenario) for test in tests):
        names = {test.name for test in tests if (test.number, test.scenario) == (number, scenario)}
        config = {
            "num.partitions": 4,
            "default.replication.factor": 3,
            "group.initial.rebalance.delay.ms": 3000,  # Kafka's default: some tests count the rebalances
            # A client whose application does not poll stays silent until its session ends; a test waits 30 s for that.
            "group.consumer.min.session.timeout.ms": 6000,
            "group.consumer.session.timeout.ms": 6000,
            "group.consumer.heartbeat.interval.ms": 2000,
            "replica.selector.class": RACK_AWARE,
            "auto.create.topics.enable": scenario != NO_AUTO_CREATE,
            **QUICK_SHARES,
            **ANY_LOCKS,
            **ACLS,
        }
        has_shares = any(SHARES in name for name in names)
        with EmbeddedCluster(3, config=config, racks=["RACK1", "RACK2", "RACK3"]) as cluster, _kafka_tools() as path:
            environment = {
                "TESTS": number,
                "TEST_KAFKA_VERSION": SHARES_VERSION if has_shares else KAFKA_VERSION,
                "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
                "BROKERS": cluster.bootstrap_servers,
                "LD_LIBRARY_PATH": f"{source / 'src'}:{source / 'src-cpp'}",
                **({} if path is None else {"KAFKA_PATH": str(path)}),
            }
            output = _run_number(source, environment, cluster.bootstrap_servers, scenario, timeout_s)
        yield from outcomes(output, names)


def _run_number(source: Path, environment: dict[str, str], servers: str, scenario: str, timeout_s: float) -> str:
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "test.conf"
        lines = [
            f"metadata.broker.list={servers}",
            "broker.address.family=v4",
            "test.topic.random=true",
            f"test.timeout.multiplier={PATIENCE}",
        ]
        settings.write_text("\n".join(lines) + "\n")
        try:
            done = subprocess.run(
                # One at a time, none that needs no broker, none with an issue that librdkafka knows of.
                ["./test-runner", "-p1", "-L", "-K", "-s", scenario],
                cwd=source / "tests",
                env={**os.environ, **environment, "RDKAFKA_TEST_CONF": str(settings)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired as expired:
            return (expired.stdout or b"").decode(errors="replace")
    return done.stdout.decode(errors="replace")


def outcomes(output: str, names: set[str]) -> Iterator[Result]:
    """By the runner's summary. A run that aborted or took too long has none: what did not pass before has failed."""
    text = _ESCAPES.sub("", output)
    summary = dict(re.findall(r"^\|\s*(\d{4}_\w+)\s*\|\s*([A-Z]+)", text, re.MULTILINE))
    passed = set(re.findall(r"Test (\d{4}_\w+) PASSED", text))
    for name in sorted(names):
        outcome = summary.get(name, "PASSED" if name in passed else "FAILED").lower()
        yield Result(name=name, outcome=outcome)


@contextmanager
def _kafka_tools() -> Iterator[Path | None]:
    """A folder with those of Kafka's scripts that tests call; None where Apache Kafka's packages cannot be had."""
    try:
        jars = tools()
    except Unavailable:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bin").mkdir()
        for name, command in KAFKA_SCRIPTS.items():
            script = Path(folder) / "bin" / name
            script.write_text(f'#!/bin/sh\nexec java -cp "$CLASSPATH:{jars}/*" {command} "$@"\n')
            script.chmod(0o755)
        yield Path(folder)


# --- the Python clients


def aiokafka(source: Path, *, python: str) -> Iterator[Result]:
    """All tests that need a broker but those of SASL."""
    with EmbeddedCluster(config={"num.partitions": 2}) as cluster:
        options = ["-p", "aiokafka_fixtures", "--docker-image", "embedded:0_2.8.1", "--deselect", "tests/test_sasl.py"]
        environment = {ADDRESS: cluster.bootstrap_servers, "PYTHONPATH": str(Path(__file__).parent)}
        yield from _pytest(source, python, ["tests", *options], environment)


def kafka_python(source: Path, *, python: str) -> Iterator[Result]:
    """The integration tests but those of SASL and TLS; with the settings of its own server.properties that matter."""
    config = {"num.partitions": 4, "offsets.topic.num.partitions": 2, "group.min.session.timeout.ms": 1000, **ACLS}
    with EmbeddedCluster(config=config) as cluster:
        left_out = [f"--ignore=test/integration/test_{kind}_integration.py" for kind in ("sasl", "ssl")]
        # The version that the client infers from the ranges of APIs that the broker lists.
        environment = {"KAFKA_VERSION": "4.3.0", "KAFKA_ROOT": "/", "KAFKA_URI": f"kafka://{cluster.bootstrap_servers}"}
        yield from _pytest(source, python, ["test/integration", *left_out], environment)


def confluent_kafka(source: Path, *, python: str) -> Iterator[Result]:
    """The integration tests of the share consumer that need no registry."""
    with EmbeddedCluster(config={"num.partitions": 4, **QUICK_SHARES, **SHORT_LOCKS}) as cluster:
        yield from _pytest(source, python, ["tests/integration/share_consumer"], {"BROKERS": cluster.bootstrap_servers})


def _pytest(source: Path, python: str, arguments: Sequence[str], environment: dict[str, str]) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [python, "-m", "pytest", *arguments, f"--junitxml={report}", "-q", "-p", "no:cacheprovider"]
        subprocess.run(command, cwd=source, env={**os.environ, **environment}, stdout=sys.stderr, check=False)
        if not report.exists():
            raise SystemExit(f"{python} -m pytest wrote no report in {source}: see above")
        cases = ElementTree.parse(report).getroot().iter("testcase")
    for case in cases:
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        yield Result(name=f"{case.get('classname')}::{case.get('name')}", outcome=outcome)


PYTHON_SUITES = {"aiokafka": aiokafka, "kafka-python": kafka_python, "confluent-kafka": confluent_kafka}


# --- the command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run a client's own integration tests against the embedded broker.")
    parser.add_argument("suite", choices=("librdkafka", *PYTHON_SUITES))
    parser.add_argument("--source", type=Path, required=True, help="checkout of the client, ready for its tests")
    parser.add_argument("--python", default=sys.executable, help="interpreter with the client's test requirements")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic", help="of librdkafka's groups")
    parser.add_argument("--only", nargs="*", default=(), metavar="NUMBER", help="numbers of librdkafka's tests")
    parser.add_argument("--timeout", type=float, default=900, metavar="SECONDS", help="of one number (default 900)")
    options = parser.parse_args(arguments)
    source = options.source.expanduser().resolve()
    if options.suite == "librdkafka":
        results = librdkafka(source, protocol=options.protocol, only=options.only, timeout_s=options.timeout)
    else:
        results = PYTHON_SUITES[options.suite](source, python=options.python)
    counts: Counter[str] = Counter()
    for result in results:
        counts[result.outcome] += 1
        sys.stdout.write(f"{result.outcome:8} {result.name}\n")
        sys.stdout.flush()
    run_count = counts["passed"] + counts["failed"]
    sys.stdout.write(f"{options.suite}: {counts['passed']} of {run_count} pass, {counts['skipped']} skipped\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
