"""`ottla plan`: what is printed, what is written, what is refused, and what is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_output import Run, document

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli import main
from ottla.testing import Kafka

QUICK = ("--sample", "0s")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        with Admin(running.bootstrap_servers) as admin:
            admin.create_topics({"orders": TopicSpec(partitions=8, replication_factor=1)})
        kafka = Kafka(running.bootstrap_servers, kind="embedded", cluster=running)
        for number in range(8):
            kafka.produce("orders", [b"x" * 1_000] * 50, partition=number)
        running.add_broker()
        yield running


def test_a_plan_is_printed_with_reasons_and_the_brokers_before_and_after(ottla: Run) -> None:
    result = ottla("plan", "rebalance", *QUICK, "--format", "table", "-o", "plan.json")
    assert result.exit_code == 0, result.output
    assert "broker 1 is 50% above its fair share" in result.stdout
    assert "████████████████ 1.50" in result.stdout
    assert "note: 1.12 × the mean is the best that can be reached: 7 replicas" in result.stderr, "8 on 3 brokers"
    assert "nothing moves until: ottla plan run plan.json" in result.stderr
    document = json.loads(Path("plan.json").read_bytes())
    assert document["version"] == 1
    assert {line["topic"] for line in document["partitions"]} == {"orders"}


def test_json_has_moves_brokers_and_what_can_be_reached(ottla: Run) -> None:
    found = json.loads(ottla("plan", "add-brokers", "3", *QUICK, "--format", "json").stdout)
    assert found["schema"] == "ottla.plan.add-brokers/1"
    assert {3} == {broker for item in found["items"] for broker in set(item["new"]) - set(item["old"])}
    assert found["bytes_copied"] == sum(item["bytes"] for item in found["items"])
    # Of equal partitions 1.125. A producer that was held up has cut one into more batches, which take some bytes more.
    assert found["floor"]["level"] == pytest.approx(1.125, abs=0.002)
    assert [each["broker"] for each in found["brokers"]] == [1, 2, 3]


def test_plain_output_is_one_move_a_line(ottla: Run) -> None:
    lines = ottla("plan", "rebalance", *QUICK).stdout.splitlines()
    assert len(lines) in (2, 3)
    assert all(len(line.split("\t")) == 7 for line in lines)


def test_a_plan_for_a_file_of_facts_needs_no_cluster(ottla: Run) -> None:
    Path("facts.json").write_text(ottla("cluster", "facts").stdout)
    result = ottla("plan", "remove-brokers", "2", "--facts", "facts.json", OTTLA_BOOTSTRAP_SERVERS="localhost:1")
    assert result.exit_code == 0, result.output
    assert "broker 2 is to be emptied" in result.stdout


def test_what_speaks_against_a_file_is_said_and_ends_with_1(ottla: Run) -> None:
    line = {"topic": "orders", "partition": 0, "replicas": [9]}
    Path("by-hand.json").write_text(json.dumps({"version": 1, "partitions": [line]}))
    result = ottla("plan", "check", "by-hand.json", *QUICK)
    assert result.exit_code == 1
    assert "problem: orders-0: broker 9 is not in the cluster" in result.stderr
    result = ottla("plan", "run", "by-hand.json", "--yes")
    assert result.exit_code == 2
    assert "not begun: orders-0: broker 9 is not in the cluster" in result.stderr
    assert not Path("by-hand.json.journal").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add-brokers", "x"], "found 'x' in 'x', wanted ids as in 4,5"),
        (["add-brokers", "7"], "broker 7: the cluster has no such broker, wanted one of 1, 2, 3"),
        (["replication-factor", "orders", "4"], "orders: found 4 replicas, wanted 1 to 3"),
        (["replication-factor", "none", "1"], "none: the cluster has no such topic"),
        (["check", "missing.json"], "missing.json: No such file"),
    ],
)
def test_what_cannot_be_is_refused_with_2(ottla: Run, arguments: list[str], message: str) -> None:
    result = ottla("plan", *arguments, *QUICK)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_run_asks_first_and_a_dry_run_changes_nothing(ottla: Run, admin: Admin) -> None:
    before = admin.list_topics()
    assert ottla("plan", "rebalance", *QUICK, "-o", "plan.json").exit_code == 0
    assert ottla("plan", "run", "plan.json").exit_code == 2
    dry = ottla("plan", "run", "plan.json", "--dry-run", "--format", "json")
    assert dry.exit_code == 0
    assert {each["state"] for each in document(dry, "ottla.plan.run/1")["items"]} == {"waits"}
    assert admin.list_topics() == before
    assert not Path("plan.json.journal").exists()


def test_a_plan_is_run_seen_to_be_done_and_reverted(ottla: Run, admin: Admin) -> None:
    before = {each.partition: each.replicas for each in admin.list_topics()[0].partitions}
    assert ottla("plan", "add-brokers", "3", *QUICK, "-o", "plan.json").exit_code == 0
    ran = ottla("plan", "run", "plan.json", "--yes", "--poll", "0.05", "--format", "json")
    assert ran.exit_code == 0, ran.output
    assert "partitions are where the plan wants them" in ran.stderr
    done = document(ran, "ottla.plan.run/1")
    assert (done["complete"], {item["state"] for item in done["items"]}) == (True, {"done"})
    again = ottla("plan", "run", "plan.json", "--yes", "--poll", "0.05")
    assert again.exit_code == 0, "the same command once more has nothing to do"
    states = document(ottla("plan", "status", "plan.json", "--format", "json"), "ottla.plan.status/1")
    assert {item["state"] for item in states["items"]} == {"done"}
    rollback = json.loads(Path("plan.json.rollback.json").read_bytes())
    assert set(rollback) == {"version", "partitions"}, "Kafka's plain format"
    dry = document(ottla("plan", "cancel", "plan.json", "--dry-run", "--format", "json"), "ottla.plan.cancel/1")
    assert (dry["complete"], {item["state"] for item in dry["items"]}) == (False, {"done"})
    back = ottla("plan", "cancel", "plan.json", "--revert", "--yes", "--poll", "0.05", "--format", "json")
    assert back.exit_code == 0, back.output
    staying = document(back, "ottla.plan.cancel/1")["items"]
    assert {item["partition"]: tuple(item["replicas"]) for item in staying}.items() <= before.items()
    assert {each.partition: each.replicas for each in admin.list_topics()[0].partitions} == before


def test_another_plan_under_the_same_name_begins_anew_and_one_under_way_is_protected(ottla: Run, admin: Admin) -> None:
    assert ottla("plan", "add-brokers", "3", *QUICK, "-o", "plan.json").exit_code == 0
    assert ottla("plan", "run", "plan.json", "--yes", "--poll", "0.05").exit_code == 0
    assert ottla("plan", "remove-brokers", "3", *QUICK, "-o", "plan.json").exit_code == 0
    ran = ottla("plan", "run", "plan.json", "--yes", "--poll", "0.05")
    assert ran.exit_code == 0, ran.output
    assert all(3 not in each.replicas for each in admin.list_topics()[0].partitions)
    assert Path("plan.json.journal.old").exists()
    lines = Path("plan.json.journal").read_text().splitlines()
    Path("plan.json.journal").write_text("\n".join(lines[:-1]) + "\n")
    Path("plan.json").write_text(Path("plan.json.rollback.json").read_text())
    result = ottla("plan", "run", "plan.json", "--yes")
    assert result.exit_code == 2
    assert "changed after its run began" in result.stderr


def test_every_command_explains_itself_with_examples_and_every_option_says_something() -> None:
    group = main.get_command(click.Context(main), "plan")
    assert isinstance(group, click.Group)
    for name, command in group.commands.items():
        assert f"  ottla plan {name}" in CliRunner().invoke(main, ["plan", name, "--help"]).stdout
        for parameter in command.params:
            assert not isinstance(parameter, click.Option) or parameter.help, f"{name}: {parameter.name} says nothing"


def test_help_loads_neither_a_client_nor_the_admin_library() -> None:
    program = (
        "import sys\nfrom ottla.cli import main\ntry:\n    main(['plan', '--help'])\nexcept SystemExit:\n    pass\n"
    )
    program += "print(*sys.modules, file=sys.stderr)\n"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert not set(ended.stderr.split()) & {"confluent_kafka", "pyarrow", "ottla.admin.admin_client", "msgspec"}
