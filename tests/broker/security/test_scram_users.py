"""Users that come, change their password and go while the cluster runs, by an admin client: KIP-554."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster, Security
from ottla.columnar import read
from ottla.testing import secure_kafka
from ottla.wire_client.errors import BrokerRefused
from ottla_wire.protocol import ApiKey, ErrorCode

SHA_256 = ScramMechanism.SCRAM_SHA_256


def settings_of(name: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": name,
        "sasl.password": password,
    }


def may_read(cluster: EmbeddedCluster, name: str, password: str) -> bool:
    try:
        read("orders", bootstrap_servers=cluster.bootstrap_servers, settings=settings_of(name, password)).read_all()
    except BrokerRefused:
        return False
    return True


def admin_of(cluster: EmbeddedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **settings_of("alice", "secret")})


def upsertion(name: str, password: str, iterations: int = 8_192) -> UserScramCredentialUpsertion:
    return UserScramCredentialUpsertion(name, ScramCredentialInfo(SHA_256, iterations), password.encode())


def alter(admin: AdminClient, *alterations: Any) -> None:
    for future in admin.alter_user_scram_credentials(list(alterations)).values():
        future.result(30)


SECURITY = Security("SASL_PLAINTEXT", users={"alice": "secret"}, mechanisms=("SCRAM-SHA-256",))


def test_a_user_is_made_gets_another_password_and_goes() -> None:
    with EmbeddedCluster(security=SECURITY) as cluster:
        cluster.create_topic("orders")
        admin = admin_of(cluster)
        assert not may_read(cluster, "bob", "b1")
        alter(admin, upsertion("bob", "b1"))
        assert may_read(cluster, "bob", "b1")
        alter(admin, upsertion("bob", "b2"))
        assert not may_read(cluster, "bob", "b1")
        assert may_read(cluster, "bob", "b2")
        alter(admin, UserScramCredentialDeletion("bob", SHA_256))
        assert not may_read(cluster, "bob", "b2")


def test_users_are_listed_with_their_mechanisms() -> None:
    with EmbeddedCluster(security=SECURITY) as cluster:
        admin = admin_of(cluster)
        alter(admin, upsertion("bob", "b1"))
        everybody = admin.describe_user_scram_credentials().result(30)
        found = {
            name: [(each.mechanism, each.iterations) for each in described.scram_credential_infos]
            for name, described in everybody.items()
        }
        assert found == {"alice": [(SHA_256, 4_096)], "bob": [(SHA_256, 8_192)]}
        with pytest.raises(KafkaException, match="does not exist"):
            admin.describe_user_scram_credentials(["nobody"])["nobody"].result(30)


def test_each_user_has_an_outcome_and_what_can_be_done_is_done() -> None:
    mechanism = {"mechanism": 1}
    salted = {"salt": b"salt", "salted_password": bytes(32), "iterations": 4_096}
    request = {
        "deletions": [{"name": "nobody", **mechanism}, {"name": "twice", **mechanism}, {"name": "", **mechanism}],
        "upsertions": [
            {"name": "new", **mechanism, **salted},
            {"name": "alice", **mechanism, **salted},
            {"name": "alice", "mechanism": 2, **salted},
            {"name": "quick", **mechanism, **salted, "iterations": 4_095},
            {"name": "slow", **mechanism, **salted, "iterations": 16_385},
            {"name": "other", "mechanism": 0, **salted},
        ],
    }
    with EmbeddedCluster() as cluster:
        client = WireClient(cluster.bootstrap_servers, timeout_s=30)
        answer = client.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
        assert {each.user: ErrorCode(each.error_code).name for each in answer.results} == {
            "nobody": "RESOURCE_NOT_FOUND",
            "twice": "RESOURCE_NOT_FOUND",
            "": "UNACCEPTABLE_CREDENTIAL",
            "new": "NONE",
            "alice": "DUPLICATE_RESOURCE",
            "quick": "UNACCEPTABLE_CREDENTIAL",
            "slow": "UNACCEPTABLE_CREDENTIAL",
            "other": "UNSUPPORTED_SASL_MECHANISM",
        }
        described = client.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})
        assert [each.user for each in described.results] == ["new"]
        named = [{"name": "new"}, {"name": "alice"}, {"name": "alice"}]
        described = client.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": named})
        assert {each.user: ErrorCode(each.error_code).name for each in described.results} == {
            "new": "NONE",
            "alice": "DUPLICATE_RESOURCE",
        }
        client.close()


def test_users_outlive_a_restart_and_those_of_the_start_are_as_it_says(tmp_path: Path) -> None:
    with EmbeddedCluster(data_dir=tmp_path, security=SECURITY) as cluster:
        cluster.create_topic("orders")
        alter(admin_of(cluster), upsertion("bob", "b1"))
    changed = Security("SASL_PLAINTEXT", users={"alice": "new"}, mechanisms=("SCRAM-SHA-256",))
    with EmbeddedCluster(data_dir=tmp_path, security=changed) as cluster:
        assert may_read(cluster, "bob", "b1")
        assert may_read(cluster, "alice", "new")
        assert not may_read(cluster, "alice", "secret")


def test_every_broker_of_a_cluster_knows_a_user_whoever_was_asked() -> None:
    with secure_kafka("SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", users={"alice": "secret"}, brokers=3) as kafka:
        cluster = kafka.cluster
        assert cluster is not None
        cluster.create_topic("orders")
        other = next(node for node in cluster.broker_ids if node != cluster.controller_id)
        address = kafka.bootstrap_servers.split(",")[other - 1]
        admin = AdminClient({"bootstrap.servers": address, **kafka.settings})
        alter(admin, upsertion("bob", "b1"))
        cluster.create_topic("later")  # known to every broker, so what was before it is known too
        assert all(
            read("orders", bootstrap_servers=each, settings=settings_of("bob", "b1")).read_all().num_rows == 0
            for each in kafka.bootstrap_servers.split(",")
        )


def test_files_with_credentials_are_for_their_owner_alone(tmp_path: Path) -> None:
    security = Security(protocol="SASL_PLAINTEXT", users={"alice": "secret"})
    with EmbeddedCluster(data_dir=tmp_path, security=security) as cluster:
        cluster.create_topic("orders")
    modes = {path: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert any("__cluster_metadata" in str(path) for path in modes)
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
