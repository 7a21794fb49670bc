"""The broker is killed while a changing command waits for it: the command ends, says so, and never says done."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_tree import walked
from dying_brokers import assert_not_called_done, run_until_it_dies

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, ReplicaMove, TopicSpec
from ottla.cli import main
from ottla.errors import BrokerUnavailable
from ottla.schedule.headers import DEFAULT_NAME, schedule_topic
from ottla.schedule.tasks.task_records import Definition
from ottla.schedule.wheel import WHEEL
from ottla.sync.serve.task_registration import register_tasks
from ottla.testing import Kafka, wait_until

pytestmark = pytest.mark.complete

CHANGES = [
    ("INCREMENTAL_ALTER_CONFIGS", "apply run cluster.toml --yes"),
    ("CREATE_TOPICS", "topics create new"),
    ("INCREMENTAL_ALTER_CONFIGS", "topics set orders retention.ms=1h --yes"),
    ("INCREMENTAL_ALTER_CONFIGS", "topics unset orders segment.ms --yes"),
    ("CREATE_PARTITIONS", "topics add-partitions orders 6 --yes"),
    ("DELETE_TOPICS", "topics delete orders --yes"),
    ("DELETE_RECORDS", "topics delete-records orders --before latest --yes"),
    ("OFFSET_COMMIT", "groups reset billing --to latest --yes"),
    ("OFFSET_COMMIT", "groups copy billing billing-2 --yes"),
    ("OFFSET_DELETE", "groups delete-offsets billing --topic orders --yes"),
    ("DELETE_GROUPS", "groups delete billing --yes"),
    ("OFFSET_COMMIT", "groups restore before.json --yes"),
    ("INCREMENTAL_ALTER_CONFIGS", "cluster set all message.max.bytes=2MiB --yes"),
    ("INCREMENTAL_ALTER_CONFIGS", "cluster unset all message.max.bytes --yes"),
    ("CREATE_ACLS", "acls create --allow-principal User:web --producer --topic orders --yes"),
    ("DELETE_ACLS", "acls delete --allow-principal User:old --yes"),
    ("ALTER_CLIENT_QUOTAS", "quotas set producer_byte_rate=1048576 --client-id reports --yes"),
    ("ALTER_CLIENT_QUOTAS", "quotas remove producer_byte_rate --client-id old --yes"),
    ("ALTER_USER_SCRAM_CREDENTIALS", "users create new --yes"),
    ("ALTER_USER_SCRAM_CREDENTIALS", "users rotate old --yes"),
    ("ALTER_USER_SCRAM_CREDENTIALS", "users delete old --yes"),
    ("PRODUCE", "schedule cancel later --yes"),
    ("PRODUCE", "schedule pause billing/report --yes"),
    ("PRODUCE", "schedule resume billing/report --yes"),
    ("PRODUCE", "schedule trigger billing/report --yes"),
    ("PRODUCE", "schedule remove billing/report --yes"),
]
OF_SEVERAL_BROKERS = [
    ("ALTER_PARTITION_REASSIGNMENTS", "topics set-replicas wide 1 --yes"),
    ("ELECT_LEADERS", "cluster elect wide --yes"),
]

_PLANS = "tests/cli/operations/test_plan_when_brokers_die.py"
_RECORDS = "tests/cli/records"
_LOST_TARGET = "tests/cli/operations/test_plan_lost_target.py"
_SCHEDULERS = "tests/sdk/schedule/test_scheduler_faults.py"
_BRIDGES = "tests/bridge"
ELSEWHERE = {
    "bridge amqp": f"{_BRIDGES}/test_from_rabbitmq.py::test_nothing_is_lost_when_kafka_and_rabbitmq_die",
    "bridge mqtt": f"{_BRIDGES}/test_bridge_command.py"
    "::test_every_acknowledged_message_is_in_kafka_when_bridge_and_leader_are_killed",
    "dlq purge": f"{_RECORDS}/test_purge_when_a_leader_dies.py::test_the_next_leader_is_asked_again",
    "dlq redrive": f"{_RECORDS}/test_redrive_when_the_broker_dies.py::test_a_redrive_goes_on_when_the_broker_is_back",
    "outbox relay": "tests/cli/test_outbox_command.py::test_a_relay_goes_on_when_the_broker_is_back",
    "plan cancel": f"{_PLANS}::test_a_cancel_is_not_called_done_and_is_done_by_the_next",
    "plan run": f"{_PLANS}::test_a_run_is_not_called_done_and_goes_on",
    "plan throttle": f"{_PLANS}::test_a_throttle_is_not_called_changed_and_is_changed_by_the_next",
    "plan watch": f"{_LOST_TARGET}::test_a_watch_plans_anew_when_a_target_died_before_its_hours",
    "produce": f"{_RECORDS}/test_produce_command.py::test_a_broker_that_dies_half_way_loses_and_doubles_nothing",
    "registry start": "tests/cli/test_registry_command.py"
    "::test_a_schema_that_the_cluster_did_not_keep_is_not_called_registered",
    "schedule run": f"{_SCHEDULERS}::test_a_slot_whose_leader_dies_goes_on_with_the_next_one",
    "topics copy": f"{_RECORDS}/test_topics_copy.py::test_a_leader_that_dies_during_a_copy_costs_and_doubles_nothing",
}
"""Changes of many steps, and where the broker goes away between them."""
OF_NO_BROKER = {
    *("store-offsets reset", "store-offsets show", "outbox drop", "outbox retry"),
    *("pipeline checkpoint reset", "pipeline checkpoint set-offsets"),
    *("schemas delete", "schemas register", "schemas restore", "schemas set-compatibility"),
    "schemas unset-compatibility",
}
"""What changes a database, files of Spark, or a schema registry (tests/cli/test_schemas_access.py)."""
READS = {
    *("acls list", "apply export", "apply plan"),
    *(f"cluster {name}" for name in ("brokers", "disks", "facts", "features", "quorum", "settings", "show")),
    "cluster transactions",
    *("console", "consume", "dlq list", "dlq show", "doctor", "exporter", "groups lag", "groups list", "groups show"),
    *(f"plan {name}" for name in ("add-brokers", "check", "dirs", "leaders", "rebalance", "remove-brokers", "status")),
    *("plan replication-factor", "quotas list", "schedule list", "schedule show", "topics list", "topics show"),
    "users list",
}
"""What only looks. The console's changes are those of commands."""
OPTIONS_OF_A_CLUSTER = ("bootstrap_servers", "cluster", "config_file", "timeout_s")


AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config=AUTHORIZED) as running:
        yield running


@pytest.fixture
def orders(cluster: EmbeddedCluster, admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic with records and a setting, a group that has read none of them, and of all else what can be undone."""
    for topic in admin.list_topics():
        admin.delete_topics(topic.name)
    if admin.list_groups():
        admin.delete_groups(*(group.group_id for group in admin.list_groups()))
    delayed = {
        schedule_topic(DEFAULT_NAME): TopicSpec(partitions=WHEEL.partitions, config={"cleanup.policy": "compact"})
    }
    admin.create_topics({"orders": TopicSpec(partitions=3, config={"segment.ms": 3_600_000}), **delayed})
    Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster).produce("orders", [b"1", b"2"], partition=0)
    task = Definition(id="billing/report", version=(1,), topic="orders", every_ms=3_600_000)
    register_tasks(cluster.bootstrap_servers, DEFAULT_NAME, [task], settings={})
    admin.apply_reset(admin.plan_reset("billing", to="earliest", topics={"orders": None}))
    admin.apply_reset(admin.plan_reset("audit", to="earliest", topics={"orders": None}))
    ahead = admin.plan_reset("audit", to="latest", topics={"orders": None})
    admin.apply_reset(ahead, undo_file=tmp_path / "before.json")
    admin.alter_broker_settings(None, {"message.max.bytes": 3 * 1024 * 1024})
    (tmp_path / "cluster.toml").write_text('[topics.orders]\nsettings.retention.ms = "1h"\n')
    monkeypatch.setenv("OTTLA_USER_PASSWORD", "chosen-by-a-person")
    for user in ("old", "new"):  # one may be there of an earlier change
        delete = ["users", "delete", user, "--yes", "-b", cluster.bootstrap_servers]
        CliRunner().invoke(main, delete)
    for line in (
        "users create old --yes",
        "acls create --allow-principal User:old --consumer --topic orders --group old --yes",
        "quotas set producer_byte_rate=1 --client-id old --yes",
    ):
        assert CliRunner().invoke(main, [*line.split(), "-b", cluster.bootstrap_servers]).exit_code == 0


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(("api", "line"), CHANGES, ids=[line for _, line in CHANGES])
def test_a_change_whose_broker_dies_is_not_called_done(
    cluster: EmbeddedCluster, admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run_until_it_dies(cluster, api, line, tmp_path)
    assert_not_called_done(ended)
    wait_until(_answers(admin), timeout_s=30)


@pytest.fixture(scope="module")
def two() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        yield running


@pytest.mark.parametrize(("api", "line"), OF_SEVERAL_BROKERS, ids=[line for _, line in OF_SEVERAL_BROKERS])
def test_a_change_whose_brokers_die_is_not_called_done(
    two: EmbeddedCluster, tmp_path: Path, api: str, line: str
) -> None:
    with Admin(two.bootstrap_servers, timeout_s=20) as admin:
        if "wide" not in {topic.name for topic in admin.list_topics()}:
            admin.create_topics({"wide": TopicSpec(partitions=1, replication_factor=2)})
        two.wait_for_isr("wide", 0)
        leader = two.wait_for_leader("wide")
        other = next(each for each in two.broker_ids if each != leader)
        admin.alter_replicas([ReplicaMove(topic="wide", partition=0, old=(leader, other), new=(other, leader))])
    assert_not_called_done(run_until_it_dies(two, api, line, tmp_path))


@pytest.mark.representative
def test_every_changing_command_is_tried_with_a_broker_that_dies() -> None:
    commands = dict(walked(main))
    asking = {name for name, command in commands.items() if _has(command, "yes")} - OF_NO_BROKER
    reaching = {name for name, command in commands.items() if _has(command, *OPTIONS_OF_A_CLUSTER)} - OF_NO_BROKER
    tried = {" ".join(line.split()[:2]) for _, line in (*CHANGES, *OF_SEVERAL_BROKERS)}
    assert sorted(asking - tried - {*ELSEWHERE}) == [], "each of them asks before it changes something"
    assert sorted(reaching - tried - {*ELSEWHERE} - READS) == [], "say of each whether it changes something"
    assert sorted((tried | {*ELSEWHERE}) - commands.keys()) == []
    assert sorted(READS & (tried | {*ELSEWHERE} | asking)) == []
    assert sorted(READS - reaching) == []


@pytest.mark.representative
@pytest.mark.parametrize("place", sorted(set(ELSEWHERE.values())))
def test_what_is_said_to_kill_a_broker_does(place: str) -> None:
    """The test is there, and it, its fixtures or its helpers kill a broker."""
    file, _, name = place.partition("::")
    source = Path(__file__).parents[3].joinpath(file).read_text("utf-8")
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    reached: set[str] = set()
    left = {name}
    calls: set[str] = set()
    while left:
        node = functions[left.pop()]
        reached.add(node.name)
        calls |= {ast.unparse(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)}
        used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        left |= ((used | {each.arg for each in node.args.args}) & functions.keys()) - reached
    assert calls & {"cluster.kill", "run_until_it_dies"}


def _has(command: click.Command, *names: str) -> bool:
    return set(names) <= {parameter.name for parameter in command.params}


def _answers(admin: Admin) -> Callable[[], bool]:
    def is_back() -> bool:
        try:
            return "orders" in {each.name for each in admin.list_topics()}
        except BrokerUnavailable:  # the connection that the broker closed when it died
            return False

    return is_back
