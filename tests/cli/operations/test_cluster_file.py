"""The file of `ottla apply`: what it declares, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.admin.declared.declared_cluster import DeclaredQuota, DeclaredTopic, DeclaredUser, Prune, applied_of
from ottla.admin.declared.found_cluster import FoundCluster
from ottla.admin.declared.planning import plan_changes
from ottla.admin.facts.cluster_facts import AclInfo, PartitionInfo, QuotaInfo, SettingInfo, TopicInfo
from ottla.admin.operations.scram_changes import ScramUser
from ottla.browse.cluster_file import parse_cluster_file, read_cluster_file
from ottla.browse.cluster_file_text import cluster_file_text
from ottla.errors import ConfigError, InputError

WHOLE = """
owner = "billing"

[topics.orders]
partitions = 6
replication_factor = 3
settings.retention.ms = "7d"
settings."segment.bytes" = "1MiB"
settings.cleanup.policy = ["compact", "delete"]
settings.unclean.leader.election.enable = false
settings.min.cleanable.dirty.ratio = 0.5

[topics."orders.v2"]
owner = "web"

[groups.billing.settings]
share.auto.offset.reset = "earliest"

[[acls]]
allow = ["User:billing"]
topics = ["orders"]
groups = ["billing"]
consumer = true

[[acls]]
deny = ["User:guest"]
cluster = true
hosts = ["10.0.0.1"]
operations = ["alter"]

[[quotas]]
user = "billing"
client_defaults = true
producer_byte_rate = "1MB"

[[users]]
name = "billing"
password_env = "BILLING_PASSWORD"

[[users]]
name = "billing"
mechanism = "SCRAM-SHA-256"
iterations = 4096
password_command = "pass show 'kafka/billing'"

[prune]
prefixes = ["billing."]
owners = ["billing"]
"""


def test_a_file_with_everything() -> None:
    found = parse_cluster_file(WHOLE.encode(), source="cluster.toml")
    assert found.topics == {
        "orders": DeclaredTopic(
            partitions=6,
            replication_factor=3,
            settings={
                "retention.ms": "604800000",
                "segment.bytes": "1048576",
                "cleanup.policy": "compact,delete",
                "unclean.leader.election.enable": "false",
                "min.cleanable.dirty.ratio": "0.5",
            },
            owner="billing",
        ),
        "orders.v2": DeclaredTopic(owner="web"),
    }
    assert found.groups == {"billing": {"share.auto.offset.reset": "earliest"}}
    assert [(each.resource, each.name, each.operation, each.permission, each.host) for each in found.acls] == [
        ("topic", "orders", "read", "allow", "*"),
        ("topic", "orders", "describe", "allow", "*"),
        ("group", "billing", "read", "allow", "*"),
        ("cluster", "kafka-cluster", "alter", "deny", "10.0.0.1"),
    ]
    entity = {"user": "billing", "client-id": None}
    assert found.quotas == (DeclaredQuota(entity=entity, values={"producer_byte_rate": 1_000_000.0}),)
    assert found.users == (
        DeclaredUser(user="billing", mechanism="SCRAM-SHA-512", iterations=8192, secret=("env", "BILLING_PASSWORD")),
        DeclaredUser(
            user="billing",
            mechanism="SCRAM-SHA-256",
            iterations=4096,
            secret=("command", "pass", "show", "kafka/billing"),
        ),
    )
    assert found.prune == Prune(prefixes=("billing.",), owners=("billing",))
    assert applied_of(found).topics["orders"].owner == "billing"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("topics = 1", "topics: found 1, wanted tables, as in [topics.orders]"),
        ("[topic.orders]", "found 'topic', wanted one of owner, topics, groups, acls, quotas, users, schemas, prune"),
        ("[topics.orders]\npartition = 1", "topics.orders: found 'partition', wanted one of partitions, replication_f"),
        ("[topics.orders]\npartitions = 0", "topics.orders.partitions: found 0, wanted a whole number from 1 to"),
        ("[topics.orders]\npartitions = true", "topics.orders.partitions: found True, wanted a whole number"),
        ("[topics.billing.orders]", 'a name with dots is quoted: [topics."billing.orders"]'),
        ('[topics."a b"]', "wanted a name of 1 to 249 letters"),
        ("[topics.orders]\nsettings.retention.ms = {}", None),
        ("[topics.orders]\nsettings.retention.ms = [1]", "settings.retention.ms: found [1], wanted text, a number"),
        ("[topics.orders]\nsettings.retention.ms = nan", "settings.retention.ms: found nan, wanted text"),
        ("[topics.orders]\nsettings.retention.ms = '7q'", "settings.retention.ms: retention.ms: found 7q, wanted"),
        (
            "[topics.orders.settings]\n'retention.ms' = 1\nretention.ms = 2",
            "topics.orders.settings.retention.ms: declared twice",
        ),
        ("[[acls]]\nallow = ['billing']\ntopics = ['a']", "acls 1: principal: found 'billing', wanted KIND:NAME"),
        ("[[acls]]\nallow = ['User:a']", "acls 1: say for what"),
        ("[[acls]]\nallow = ['User:a']\ntopics = ['a']\noperations = ['reed']", "operations: found 'reed', wanted one"),
        ("[[acls]]\nallow = 'User:a'", "acls 1.allow: found 'User:a', wanted a list of texts"),
        ("acls = {}", "acls: wanted a list of tables, each begun with [[acls]]"),
        ("[[quotas]]\nuser = 'a'", "quotas 1: found none, wanted one of producer_byte_rate"),
        ("[[quotas]]\nproducer_byte_rate = 1", "quotas 1: found none, wanted one of user, client_id"),
        ("[[quotas]]\nuser = 'a'\nproducer_byte_rate = -1", "producer_byte_rate: found -1, wanted a number"),
        ("[[quotas]]\nuser = 'a'\nuser_defaults = true\nproducer_byte_rate = 1", "a name and the default of user"),
        ("[[users]]\nname = 'a'", "users 1: found 0 sources of the password, wanted one of password_command and"),
        ("[[users]]\nname = 'a'\npassword_env = 'A'\niterations = 1", "iterations: found 1, wanted 4096 to 16384"),
        ("[[users]]\nname = 'a'\npassword_env = 'A'\nmechanism = 'PLAIN'", "mechanism: found 'PLAIN', wanted SCRAM-"),
        ("[[users]]\nname = 'a'\npassword_command = []", "users 1.password_command: wanted a command, as in"),
        ("[prune]\nprefixes = ['__']", "prune.prefixes: found '__', wanted no prefix of topics of Kafka"),
        ("[prune]\nprefixes = ['']", "prune.prefixes: found '', wanted text"),
        ("x = ", "not valid TOML"),
        ("\xff", "not valid TOML"),
        ("a = " + "[" * 5_000, "not valid TOML"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(text: str, problem: str | None) -> None:
    if problem is None:
        assert parse_cluster_file(text.encode("latin-1"), source="cluster.toml").topics["orders"].settings == {}
        return
    with pytest.raises(InputError) as refused:
        parse_cluster_file(text.encode("latin-1"), source="cluster.toml")
    assert str(refused.value).startswith("cluster.toml: ")
    assert problem in str(refused.value)


def test_a_password_in_the_file_is_refused_and_not_repeated() -> None:
    with pytest.raises(InputError) as refused:
        parse_cluster_file(b"[[users]]\nname = 'a'\npassword = 'hunter2'", source="cluster.toml")
    assert "users 1.password: a secret does not belong in this file; give password_command or password_env" in str(
        refused.value
    )
    assert "hunter2" not in str(refused.value)


def test_a_file_that_others_may_write_names_no_command(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(WHOLE)
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="others may write it"):
        read_cluster_file(file)
    file.write_text("[topics.orders]")
    assert set(read_cluster_file(file).topics) == {"orders"}
    with pytest.raises(InputError, match="No such file"):
        read_cluster_file(tmp_path / "absent.toml")


ODD = 'a "quoted" \\ name\t\x7f\n€'


def test_what_is_exported_declares_the_cluster_as_it_is() -> None:
    """Every text comes back, however odd, and applying it changes nothing."""
    acl = AclInfo(
        resource="topic", name="orders", pattern="literal", principal=f"User:{ODD}", host="*", operation="read",
        permission="allow",
    )  # fmt: skip
    prefixed = AclInfo(
        resource="group", name="b", pattern="prefixed", principal="User:b", host="10.0.0.1", operation="all",
        permission="deny",
    )  # fmt: skip
    of_all = AclInfo(
        resource="cluster", name="kafka-cluster", pattern="literal", principal="User:b", host="*", operation="create",
        permission="allow",
    )  # fmt: skip
    settings = {
        "retention.ms": SettingInfo(value="1", source="DYNAMIC_TOPIC_CONFIG"),
        "segment.bytes": SettingInfo(value="2", source="DEFAULT_CONFIG"),
    }
    one = PartitionInfo(partition=0, leader=1, leader_epoch=0, replicas=(1, 2), in_sync=(1, 2))
    found = FoundCluster(
        cluster_id="c",
        at_ms=0,
        topics={
            name: TopicInfo(name=name, topic_id="i", is_internal=False, partitions=(one,), settings=settings)
            for name in ("orders", "a.b", "__consumer_offsets", "_schemas")
        },
        groups={ODD: {"x.y": SettingInfo(value=ODD, source="DYNAMIC_GROUP_CONFIG")}, "none": {}},
        acls=(acl, prefixed, of_all),
        quotas=(
            QuotaInfo(entity={"user": ODD, "client-id": None}, name="producer_byte_rate", value=1.5),
            QuotaInfo(entity={"ip": "10.0.0.1"}, name="connection_creation_rate", value=7.0),
        ),
        users=(
            ScramUser(user=ODD, mechanism="SCRAM-SHA-512", iterations=8192),
            ScramUser(user=ODD, mechanism="SCRAM-SHA-256", iterations=4096),
        ),
    )
    declared = parse_cluster_file(cluster_file_text(found).encode(), source="exported.toml")
    assert set(declared.topics) == {"orders", "a.b"}
    assert declared.topics["orders"].settings == {"retention.ms": "1"}
    assert (declared.groups, set(declared.acls)) == ({ODD: {"x.y": ODD}}, {acl, prefixed, of_all})
    assert [(each.user, each.mechanism, each.secret) for each in declared.users] == [
        (ODD, "SCRAM-SHA-512", ("env", "A_QUOTED_NAME_PASSWORD")),
        (ODD, "SCRAM-SHA-256", ("env", "A_QUOTED_NAME_PASSWORD")),
    ]
    assert plan_changes(declared, applied_of(declared), found, prune=True).changes == ()
