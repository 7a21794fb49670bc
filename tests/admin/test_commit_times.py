"""Since when the offsets of empty groups are kept: read from `__consumer_offsets`, whatever stands in it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_output import document
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, AsyncAdmin, ClusterFacts, Part, TopicSpec, dump_facts, load_facts
from ottla.admin.doctor import Evidence, examine
from ottla.admin.facts.cluster_facts import CommittedOffset, GroupInfo
from ottla.admin.operations.commit_times import CommitTimes
from ottla.cli import main
from ottla.testing import Kafka
from ottla_wire.protocol import codec

DEEP = {Part.GROUPS, Part.GROUP_OFFSETS, Part.BROKER_SETTINGS, Part.COMMIT_TIMES}
FACT = GroupInfo(
    group_id="g",
    type="Classic",
    state="Empty",
    coordinator=1,
    offsets=(CommittedOffset(topic="t", partition=0, offset=7),),
)


def offset_record(at_ms: int, *, group: str = "g") -> tuple[bytes, bytes]:
    key = codec.encode_record_value("OffsetCommitKey", 1, {"group": group, "topic": "t", "partition": 0})
    value = {"offset": 7, "leader_epoch": -1, "metadata": "", "commit_timestamp": at_ms}
    return key, codec.encode_record_value("OffsetCommitValue", 3, value)


def group_record(at_ms: int, protocol_type: str = "consumer") -> tuple[bytes, bytes]:
    key = codec.encode_record_value("GroupMetadataKey", 2, {"group": "g"})
    value = {"protocol_type": protocol_type, "generation": 1, "protocol": None, "leader": None}
    value |= {"current_state_timestamp": at_ms, "members": []}
    return key, codec.encode_record_value("GroupMetadataValue", 3, value)


def kept_since(times: CommitTimes, fact: GroupInfo = FACT) -> int | None:
    (offset,) = times.of(fact).offsets or ()
    return offset.kept_since_ms


def test_the_last_commit_counts_until_a_group_was_empty() -> None:
    times = CommitTimes(["g"])
    assert kept_since(times) is None
    for at_ms in (5, 9):
        times.take(*offset_record(at_ms))
    times.take(*offset_record(99, group="another"))
    assert kept_since(times) == 9
    times.take(*group_record(20))
    assert kept_since(times) == 20
    modern = GroupInfo(group_id="g", type="Consumer", state="Empty", coordinator=1, offsets=FACT.offsets)
    assert kept_since(times, modern) == 9, "a group of KIP-848 counts from its commits"
    times.take(group_record(0)[0], None)
    times.take(offset_record(0)[0], None)
    assert kept_since(times) is None
    assert times.unreadable == 0


@given(st.binary(max_size=60) | st.none(), st.binary(max_size=60) | st.none(), st.integers(0, 3))
def test_records_of_any_bytes_are_taken_or_counted(key: bytes | None, value: bytes | None, kind: int) -> None:
    times = CommitTimes(["g"])
    times.take(*offset_record(5))
    times.take(key, value)
    times.take(None if key is None else kind.to_bytes(2, "big") + key, value)
    times.take(offset_record(5)[0], value or b"")
    times.take(group_record(5)[0], value or b"")
    assert kept_since(times) is not None


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Offsets are kept for ten hours, so they always expire within a day."""
    with EmbeddedCluster(config={"offsets.retention.minutes": 600}) as running:
        with Admin(running.bootstrap_servers) as admin:
            admin.create_topics({"orders": TopicSpec(partitions=2)})
            Kafka(running.bootstrap_servers, kind="embedded", cluster=running).produce("orders", [b"1"])
            admin.apply_reset(admin.plan_reset("sleeping", to="earliest", topics={"orders": None}))
        yield running


def findings(facts: ClusterFacts) -> list[str]:
    return [each.message for each in examine(Evidence(facts=facts), only=["GRP03"]).findings]


def test_a_group_whose_offsets_expire_is_found(cluster: EmbeddedCluster) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        facts = admin.facts(DEEP)
        shallow = admin.facts()
    (message,) = findings(facts)
    assert "group sleeping is empty, and its offsets of 2 partitions expire within 10 h" in message
    assert load_facts(dump_facts(facts)) == facts
    assert Part.COMMIT_TIMES not in shallow.parts
    assert [each.reason for each in examine(Evidence(facts=shallow), only=["GRP03"]).not_checked] == [
        "it reads the records of __consumer_offsets (--deep)"
    ]

    async def read() -> ClusterFacts:
        async with AsyncAdmin(cluster.bootstrap_servers) as there:
            return await there.facts(DEEP)

    assert len(findings(asyncio.run(read()))) == 1


def test_the_command_reads_records_only_where_it_is_told(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    env = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": os.fspath(tmp_path / "none.toml")}
    line = ["doctor", "--only", "GRP03", "--format", "json"]
    with cluster.faults.add(api="FETCH", error="TOPIC_AUTHORIZATION_FAILED", topic="__consumer_offsets") as fault:
        plain = CliRunner().invoke(main, line, env=env)
        assert fault.hits == 0
        refused = CliRunner().invoke(main, [*line, "--deep"], env=env)
        assert fault.hits > 0
    assert (plain.exit_code, document(plain, "ottla.doctor/1")["items"]) == (0, [])
    assert refused.exit_code == 1, "what was refused is not fine"
    assert "TOPIC_AUTHORIZATION_FAILED" in document(refused, "ottla.doctor/1")["not_checked"][0]["reason"]
    deep = CliRunner().invoke(main, [*line, "--deep"], env=env)
    assert deep.exit_code == 1
    assert [each["subject"] for each in document(deep, "ottla.doctor/1")["items"]] == ["group sleeping"]
