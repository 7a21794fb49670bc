"""The broker is killed while a changing command waits for it: the command ends, says so, and never says done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, ReplicaMove, TopicSpec
from ottla.cli import main
from ottla.errors import BrokerUnavailable
from ottla.testing import Kafka, wait_until

CHANGES = [
    ("CREATE_TOPICS", "topics create new"),
    ("INCREMENTAL_ALTER_CONFIGS", "topics set orders retention.ms=1h --yes"),
    ("INCREMENTAL_ALTER_CONFIGS", "topics unset orders segment.ms --yes"),
    ("CREATE_PARTITIONS", "topics add-partitions orders 6 --yes"),
    ("DELETE_TOPICS", "topics delete orders --yes"),
    ("DELETE_RECORDS", "topics trim orders --before latest --yes"),
    ("OFFSET_COMMIT", "groups reset billing --to latest --yes"),
    ("OFFSET_COMMIT", "groups copy billing billing-2 --yes"),
    ("OFFSET_DELETE", "groups forget billing --topic orders --yes"),
    ("DELETE_GROUPS", "groups delete billing --yes"),
    ("OFFSET_COMMIT", "groups restore before.json --yes"),
    ("INCREMENTAL_ALTER_CONFIGS", "cluster set all message.max.bytes=2MiB --yes"),
    ("INCREMENTAL_ALTER_CONFIGS", "cluster unset all message.max.bytes --yes"),
    ("CREATE_ACLS", "acls create --allow-principal User:web --producer --topic orders --yes"),
    ("DELETE_ACLS", "acls delete --allow-principal User:old --yes"),
    ("ALTER_CLIENT_QUOTAS", "quotas set producer_byte_rate=1048576 --client-id reports --yes"),
    ("ALTER_CLIENT_QUOTAS", "quotas remove producer_byte_rate --client-id old --yes"),
]
OF_SEVERAL_BROKERS = [
    ("ALTER_PARTITION_REASSIGNMENTS", "topics set-replicas wide 1 --yes"),
    ("ELECT_LEADERS", "cluster elect wide --yes"),
]

ELSEWHERE = {
    "dlq purge": "tests/cli/records/test_purge_when_a_leader_dies.py",
    "dlq redrive": "tests/cli/records/test_redrive_when_the_broker_dies.py",
    "topics copy": "tests/cli/records/test_topics_copy.py",
    "plan run": "tests/admin/placement/test_executor_under_faults.py",
    "plan cancel": "tests/admin/placement/test_executor_under_faults.py",
    "plan throttle": "tests/cli/operations/test_plan_watch_and_throttle.py",
    "schedule cancel": "tests/cli/test_schedule_commands.py",
}
"""Changes of many steps, and where the broker goes away between them."""
OF_NO_BROKER = {"offsets", "outbox", "pipeline"}
"""What changes a database, or files of Spark."""


AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config=AUTHORIZED) as running:
        yield running


@pytest.fixture
def orders(cluster: EmbeddedCluster, admin: Admin, tmp_path: Path) -> None:
    """A topic with records and a setting, a group that has read none of them, and of all else what can be undone."""
    for topic in admin.list_topics():
        admin.delete_topics(topic.name)
    if admin.list_groups():
        admin.delete_groups(*(group.group_id for group in admin.list_groups()))
    admin.create_topics({"orders": TopicSpec(partitions=3, config={"segment.ms": 3_600_000})})
    Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster).produce("orders", [b"1", b"2"], partition=0)
    admin.apply_reset(admin.plan_reset("billing", to="earliest", topics={"orders": None}))
    admin.apply_reset(admin.plan_reset("audit", to="earliest", topics={"orders": None}))
    ahead = admin.plan_reset("audit", to="latest", topics={"orders": None})
    admin.apply_reset(ahead, undo_file=tmp_path / "before.json")
    admin.alter_broker_settings(None, {"message.max.bytes": 3 * 1024 * 1024})
    for line in (
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


def test_every_changing_command_is_tried_with_a_broker_that_dies() -> None:
    changing = set(changing_commands(main, ()))
    tried = {" ".join(line.split()[:2]) for _, line in (*CHANGES, *OF_SEVERAL_BROKERS)}
    of_files_and_databases = {name for name in changing if name.split()[0] in OF_NO_BROKER}
    assert changing - of_files_and_databases == tried | set(ELSEWHERE)
    assert [file for file in ELSEWHERE.values() if not Path(__file__).parents[3].joinpath(file).exists()] == []


def changing_commands(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    """Those that ask before they do something."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from changing_commands(below, (*path, name))
    elif any(parameter.name == "yes" for parameter in command.params):
        yield " ".join(path)


def run_until_it_dies(cluster: EmbeddedCluster, api: str, line: str, folder: Path) -> Result:
    """Kill all brokers while the change waits for its answer; they are started again when the command has ended."""
    environment = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": str(folder / "none.toml")}

    def command() -> Result:
        return CliRunner().invoke(main, [*line.split(), "--timeout", "3"], env=environment)

    def is_the_change(request: object) -> bool:
        return not getattr(request, "validate_only", False)

    with ThreadPoolExecutor(1) as pool:
        with cluster.faults.add(api=api, hold=True, when=is_the_change) as held:
            running = pool.submit(command)
            held.wait(hits=1, timeout_s=30)
            for broker in cluster.broker_ids:
                cluster.kill(broker)
            ended = running.result(60)
        for broker in cluster.broker_ids:
            cluster.start_broker(broker)
    return ended


def assert_not_called_done(ended: Result) -> None:
    assert ended.exit_code == 1, ended.output
    assert "BrokerUnavailable" in ended.stderr
    (problem,) = [each for each in ended.stderr.splitlines() if each.startswith("ottla: ")]
    assert problem
    said = ended.stdout + ended.stderr
    assert not [word for word in (": changed", "deleted: ", ": created", "offsets set", "forgotten") if word in said]


def _answers(admin: Admin) -> Callable[[], bool]:
    def is_back() -> bool:
        try:
            return "orders" in {each.name for each in admin.list_topics()}
        except BrokerUnavailable:  # the connection that the broker closed when it died
            return False

    return is_back
