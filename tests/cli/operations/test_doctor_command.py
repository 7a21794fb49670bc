"""`ottla doctor`: on a cluster, on files, with a service, with what is accepted, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_output import Run, document, rows

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.testing.registry import EmbeddedRegistry

GOOD = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SERVICE = """
from ottla import App
app = App("billing", bootstrap_servers="unused:1", dead_letter_topic="orders.lost")
@app.handler("orders", value=bytes)
def on_order(value: bytes) -> None:
    raise SystemExit("nothing of a service runs")
not_an_app = 7
"""
TEMPORARY = ("--skip", "STO06")  # the logs of a test's broker are in a temporary directory


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, config=GOOD, racks=["a", "b", "c"]) as running:
        with Admin(running.bootstrap_servers) as admin:
            admin.create_topics({"orders": TopicSpec(partitions=3)})
        yield running


@pytest.fixture
def lonely(admin: Admin) -> Iterator[str]:
    admin.create_topics({"lonely": TopicSpec(partitions=1, replication_factor=1)})
    yield "lonely"
    admin.delete_topics("lonely")


def test_a_good_cluster_is_0_and_says_what_was_not_checked(ottla: Run) -> None:
    ended = ottla("doctor", *TEMPORARY)
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert "nothing found" in ended.stderr
    assert "not checked: MSG03, DLQ03, APP01, APP02: it needs a service's declaration (--app)" in ended.stderr
    twice = ottla("doctor", *TEMPORARY, "--samples", "2", "--every", "10ms", "--format", "json")
    assert twice.exit_code == 0, twice.output
    found = document(twice, "ottla.doctor/1")
    assert found["items"] == []
    assert "BAL05" in found["checked"]


def test_what_is_found_is_1_and_a_line_each(ottla: Run, lonely: str) -> None:
    found = ottla("doctor", "--only", "rep01,REP05")
    assert found.exit_code == 1
    ((severity, id, subject, message, fix),) = [line.split("\t") for line in found.stdout.splitlines()]
    assert (severity, id, subject) == ("error", "REP01", lonely)
    assert message.startswith("lonely has 1 replica on a cluster of 3 brokers")
    assert fix == "ottla topics set-replicas lonely 3"
    (item,) = document(ottla("doctor", "--only", "REP01", "--format", "json"), "ottla.doctor/1")["items"]
    assert item["why"].startswith("Each of its partitions is on one broker.")
    table = ottla("doctor", "--only", "REP01", "--format", "table").stdout
    assert table.splitlines()[1].strip() == "fix: ottla topics set-replicas lonely 3"


def test_how_bad_it_must_be_to_fail(ottla: Run) -> None:
    assert ottla("doctor", "--only", "STO06").exit_code == 1
    assert ottla("doctor", "--only", "STO06", "--fail-on", "error").exit_code == 0


def test_many_findings_of_one_check_are_folded_for_people(ottla: Run, admin: Admin) -> None:
    names = [f"alone-{number}" for number in range(5)]
    admin.create_topics(dict.fromkeys(names, TopicSpec(partitions=1, replication_factor=1)))
    shown = ottla("doctor", "--only", "REP01", "--format", "table").stdout
    assert "and 2 more: --only REP01 --format plain" in shown
    assert len(ottla("doctor", "--only", "REP01", "--format", "plain").stdout.splitlines()) == 5
    admin.delete_topics(*names)


def test_what_is_known_is_accepted_until_a_day(ottla: Run, lonely: str) -> None:
    tomorrow = (datetime.now(UTC).date() + timedelta(days=1)).isoformat()
    accept = ("doctor", "--only", "REP01", "--accept", "known.json")
    assert ottla(*accept, "--reason", "a test topic", "--until", tomorrow).exit_code == 0
    known = ottla("doctor", "--only", "REP01", "--baseline", "known.json")
    assert (known.exit_code, known.stdout) == (0, "")
    assert "1 accepted by the baseline" in known.stderr
    assert ottla(*accept, "--reason", "again", "--until", tomorrow).exit_code == 2, "it exists"
    baseline = json.loads(Path("known.json").read_text())
    baseline["accepted"][0]["until"] = "2020-01-01"
    Path("known.json").write_text(json.dumps(baseline))
    assert ottla("doctor", "--only", "REP01", "--baseline", "known.json").exit_code == 1, "it has ended"


def test_a_file_of_facts_is_examined_without_a_cluster(ottla: Run, lonely: str) -> None:
    Path("first.json").write_text(ottla("cluster", "facts").stdout)
    Path("second.json").write_text(ottla("cluster", "facts").stdout)
    nowhere = ("-b", "127.0.0.1:1")
    found = ottla("doctor", "--facts", "first.json", "--only", "REP01", *nowhere)
    assert found.exit_code == 1
    assert lonely in found.stdout
    both = ottla("doctor", "--facts", "first.json", "--facts", "second.json", *TEMPORARY, "--skip", "REP01", *nowhere)
    assert "GRP01" not in both.stderr, "two samples are enough for it"
    assert ottla("doctor", "--facts", "second.json", "--facts", "first.json", *nowhere).exit_code == 2
    Path("few.json").write_text(ottla("cluster", "facts", "--part", "topics").stdout)
    few = ottla("doctor", "--facts", "few.json", *nowhere)
    assert "the facts have no" in few.stderr, "what is not in the file is not called fine"


def test_a_service_is_checked_against_its_cluster(ottla: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("billing_to_check.py").write_text(SERVICE)
    found = ottla("doctor", "--app", "billing_to_check:app", "--processes", "4", "--only", "DLQ03,APP01")
    assert found.exit_code == 1
    by_id = {line.split("\t")[1]: line for line in found.stdout.splitlines()}
    assert by_id["DLQ03"].endswith("ottla topics create orders.lost")
    assert "APP01" in by_id
    for target, told in (
        ("billing_to_check:other", "has no attribute 'other'; it has app"),
        ("billing_to_check:not_an_app", "is a int, wanted an ottla App"),
        ("nothing:app", "there is no module 'nothing'"),
        ("billing_to_check", "expected MODULE:APP"),
    ):
        refused = ottla("doctor", "--app", target)
        assert refused.exit_code == 2
        assert told in refused.stderr


def test_what_could_not_be_read_is_not_a_good_result(ottla: Run, cluster: EmbeddedCluster) -> None:
    with cluster.faults.add(api="DESCRIBE_LOG_DIRS", broker=2, error="CLUSTER_AUTHORIZATION_FAILED"):
        ended = ottla("doctor", "--only", "AVL03")
    assert ended.exit_code == 1, ended.output
    assert "not checked: AVL03: broker 2" in ended.stderr
    assert "broker 2: broker 2" not in ended.stderr
    assert "nothing found by 0 checks; 1 could not see all" in ended.stderr


def test_a_check_is_explained_without_a_cluster(ottla: Run) -> None:
    told = ottla("doctor", "--explain", "grp04", "--explain", "MSG03", "-b", "127.0.0.1:1")
    assert told.exit_code == 0
    assert told.stdout.startswith("GRP04 (error): A group loses records that it has not read")
    assert "a service (--app)" in told.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--only", "REP99"], "REP99: no check has this id, wanted one of REP01, REP02"),
        (["--explain", "REP99"], "REP99: no check has this id"),
        (["--every", "often"], "--every: found 'often', wanted a time as 90s"),
        (["--facts", "missing.json"], "missing.json: No such file or directory"),
        (["--facts", "wrong.json"], "wrong.json: found the schema 'other', wanted 'ottla.facts/1'"),
        (["--baseline", "wrong.json"], "wrong.json: found the schema 'other', wanted 'ottla.doctor.baseline/1'"),
        (["--accept", "new.json"], "wanted --reason and --until as well"),
        (["--accept", "new.json", "--reason", "x", "--until", "soon"], "found 'soon', wanted a date as in 2027-01-31"),
        (["--until", "2027-01-31"], "found --reason or --until without --accept"),
        (["-b", "127.0.0.1:1"], "no Kafka broker answered at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(ottla: Run, arguments: list[str], told: str) -> None:
    Path("wrong.json").write_text('{"schema": "other"}')
    ended = ottla("doctor", *arguments)
    assert ended.exit_code == 2, ended.output
    assert told in ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr


def test_the_good_cluster_has_nothing_to_say_in_plain(ottla: Run) -> None:
    assert rows(ottla("doctor", *TEMPORARY)) == []


def test_drift_from_declarations_is_found(ottla: Run, lonely: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(f'[topics.{lonely}]\nsettings.retention.ms = "1h"\n')
    ended = ottla("doctor", "--only", "DRF01", "--declared", str(file), "--format", "json")
    assert ended.exit_code == 1
    (item,) = document(ended, "ottla.doctor/1")["items"]
    assert item["message"] == "lonely: topic setting retention.ms is none and is declared as 3600000"
    file.write_text(f"[topics.{lonely}]\n")
    assert ottla("doctor", "--only", "DRF01", "--declared", str(file)).exit_code == 0
    file.write_text('[schemas.orders-value]\ncompatibility = "FULL"\n')
    refused = ottla("doctor", "--only", "DRF01", "--declared", str(file))
    assert (refused.exit_code, "wanted --registry or OTTLA_REGISTRY" in refused.stderr) == (2, True)
    with EmbeddedRegistry() as registry:
        drifted = ottla("doctor", "--only", "DRF01", "--declared", str(file), "--registry", registry.url)
    assert (drifted.exit_code, "compatibility level is none" in drifted.stdout) == (1, True), drifted.output
    down = "http://127.0.0.1:1"
    level = '[schemas.orders-value]\ncompatibility = "FULL"\n'
    file.write_text(f'[topics.{lonely}]\nsettings.retention.ms = "1h"\n{level}')
    half = ottla("doctor", "--only", "DRF01", "--declared", str(file), "--registry", down, "--format", "json")
    found = document(half, "ottla.doctor/1")
    assert [each["subject"] for each in found["items"]] == [lonely], "what the brokers have is compared all the same"
    (missing,) = found["not_checked"]
    assert (half.exit_code, missing["id"], down in missing["reason"]) == (1, "DRF01", True), half.output
    file.write_text(level)
    unknown = ottla("doctor", "--only", "DRF01", "--declared", str(file), "--registry", down)
    assert (unknown.exit_code, "not checked: DRF01: schema registry" in unknown.stderr) == (1, True), unknown.output
    file.write_text(f"[topics.{lonely}]\npartitions = 0\n")
    assert ottla("doctor", "--declared", str(file)).exit_code == 2, "a file that declares nothing is no finding"
    Path("facts.json").write_text(ottla("cluster", "facts").stdout)
    refused = ottla("doctor", "--declared", str(file), "--facts", "facts.json")
    assert (refused.exit_code, "found --declared and --facts" in refused.stderr) == (2, True)
