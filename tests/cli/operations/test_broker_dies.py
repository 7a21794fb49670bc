"""The broker is killed while a changing command waits for it: the command ends, says so, and never says done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
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
    ("INCREMENTAL_ALTER_CONFIGS", "cluster set all message.max.bytes=2MiB --yes"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture
def orders(cluster: EmbeddedCluster, admin: Admin) -> None:
    """A topic with records and a setting, and a group that has read none of them."""
    for topic in admin.list_topics():
        admin.delete_topics(topic.name)
    if admin.list_groups():
        admin.delete_groups(*(group.group_id for group in admin.list_groups()))
    admin.create_topics({"orders": TopicSpec(partitions=3, config={"segment.ms": 3_600_000})})
    Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster).produce("orders", [b"1", b"2"], partition=0)
    admin.apply_reset(admin.plan_reset("billing", to="earliest", topics={"orders": None}))


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(("api", "line"), CHANGES, ids=[line for _, line in CHANGES])
def test_a_change_whose_broker_dies_is_not_called_done(
    cluster: EmbeddedCluster, admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": str(tmp_path / "none.toml")}

    def command() -> Result:
        return CliRunner().invoke(main, [*line.split(), "--timeout", "3"], env=environment)

    def is_the_change(request: object) -> bool:
        return not getattr(request, "validate_only", False)

    with ThreadPoolExecutor(1) as pool:
        with cluster.faults.add(api=api, hold=True, when=is_the_change) as held:
            running = pool.submit(command)
            held.wait(hits=1, timeout_s=30)
            cluster.kill(1)
            ended = running.result(60)
        cluster.start_broker(1)
    assert ended.exit_code == 1, ended.output
    assert "BrokerUnavailable" in ended.stderr
    (problem,) = [each for each in ended.stderr.splitlines() if each.startswith("ottla: ")]
    assert problem
    said = ended.stdout + ended.stderr
    assert not [word for word in (": changed", "deleted: ", ": created", "offsets set", "forgotten") if word in said]
    wait_until(_answers(admin), timeout_s=30)


def _answers(admin: Admin) -> Callable[[], bool]:
    def is_back() -> bool:
        try:
            return "orders" in {each.name for each in admin.list_topics()}
        except BrokerUnavailable:  # the connection that the broker closed when it died
            return False

    return is_back
