"""Who may publish to the listener: users, certificates, a function."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from bridge_kit import user_line
from mqtt_client import StrictClient

from ottla.bridge import Rule, TlsFiles
from ottla.bridge.listener.logins import Login
from ottla.bridge.mqtt.codes import V311, Reason
from ottla.testing import Kafka, wait_until


def test_users_of_a_file_may_publish_and_others_not(
    make_bridge, make_topic, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", logger="ottla")
    users = tmp_path / "users"
    users.write_text(user_line("ann", "right", b"salt" * 3) + "\n")
    bridge = make_bridge([Rule("#", make_topic())], users_file=users)
    port = bridge.ports[0]
    with StrictClient(port, username="ann", password=b"right") as client:
        assert client.connack.code == 0
        client.publish("a", b"1")
        client.ack()
    for name, password in (("ann", b"wrong"), ("bob", b"right"), (None, None)):
        with StrictClient(port, f"from-{name}", username=name, password=password) as client:
            assert client.connack.code == Reason.BAD_LOGIN

    def is_logged() -> bool:
        gone = [vars(record) for record in caplog.records if "bridge_client_gone" in record.msg]
        return ("from-bob", "127.0.0.1") in {(fields["client"], fields["address"]) for fields in gone}

    wait_until(is_logged)
    with StrictClient(port, version=V311, username="ann", password=b"wrong") as client:
        assert client.connack.code == 5
    users.write_text(user_line("bob", "right", b"salt" * 3) + "\n")
    bridge.reload()

    def bob_is_known() -> bool:
        with StrictClient(port, username="bob", password=b"right") as client:
            return client.connack.code == 0

    wait_until(bob_is_known)


def test_a_function_decides_about_logins(make_bridge, make_topic):
    seen: list[Login] = []

    async def decide(login: Login) -> bool:
        seen.append(login)
        if login.client_id == "raises":
            raise ValueError("no")
        return login.client_id == "good"

    bridge = make_bridge([Rule("#", make_topic())], authenticate=decide)
    codes = []
    for name in ("good", "bad", "raises"):
        with StrictClient(bridge.ports[0], name) as client:
            codes.append(client.connack.code)
    assert codes == [0, Reason.BAD_LOGIN, Reason.BAD_LOGIN]
    assert seen[0].address == "127.0.0.1"


def test_tls_with_client_certificates(make_bridge, make_topic, kafka: Kafka, tmp_path: Path):
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server = authority.issue_cert("localhost")
    server.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    client_cert = authority.issue_cert("device-7@example.org", common_name="device-7")
    topic = make_topic()
    tls = TlsFiles(certificate=tmp_path / "server.pem", client_ca=tmp_path / "ca.pem")
    bridge = make_bridge([Rule("#", topic, key="{user}")], tls=tls, listen=["mqtts://127.0.0.1:0", "127.0.0.1:0"])
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with pytest.raises((ssl.SSLError, EOFError, ConnectionError)):
        StrictClient(bridge.ports[0], tls=context)
    client_cert.configure_cert(context)
    for claimed in (None, "device-8"):
        with StrictClient(bridge.ports[0], tls=context, username=claimed) as client:
            client.publish("a", b"1")
            client.ack()
    assert {record.key for record in kafka.consume_all(topic)} == {b"device-7"}, "no name that nobody checked"
    with StrictClient(bridge.ports[1], username="device-7") as client:
        client.publish("a", b"without a certificate")
        client.ack()
    keys = {record.value: record.key for record in kafka.consume_all(topic)}
    assert keys == {b"1": b"device-7", b"without a certificate": b""}


def test_a_user_name_that_nobody_checks_is_the_user_where_there_are_no_certificates(
    make_bridge, make_topic, kafka: Kafka
):
    topic = make_topic()
    bridge = make_bridge([Rule("#", topic, key="{user}")])
    with StrictClient(bridge.ports[0], username="device-7") as client:
        client.publish("a", b"1")
        client.ack()
    assert [record.key for record in kafka.consume_all(topic)] == [b"device-7"]


def test_an_authority_that_was_taken_out_of_the_file_is_not_trusted_after_a_reload(
    make_bridge, make_topic, tmp_path: Path
):
    trustme = pytest.importorskip("trustme")
    old, new = trustme.CA(), trustme.CA()
    old.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    (tmp_path / "ca.pem").write_bytes(old.cert_pem.bytes() + new.cert_pem.bytes())
    tls = TlsFiles(certificate=tmp_path / "server.pem", client_ca=tmp_path / "ca.pem")
    bridge = make_bridge([Rule("#", make_topic())], tls=tls, listen=["mqtts://127.0.0.1:0"])

    def context(authority: Any) -> ssl.SSLContext:
        made = ssl.create_default_context()
        old.configure_trust(made)
        authority.issue_cert("device@example.org").configure_cert(made)
        return made

    def is_admitted(made: ssl.SSLContext) -> bool:
        try:
            with StrictClient(bridge.ports[0], tls=made) as client:
                return client.connack.code == 0
        except (ssl.SSLError, EOFError, ConnectionError):
            return False

    of_old, of_new = context(old), context(new)
    assert is_admitted(of_old)
    assert is_admitted(of_new)
    with StrictClient(bridge.ports[0], "connected", tls=of_old) as client:
        new.cert_pem.write_to_path(tmp_path / "ca.pem")
        bridge.reload()
        wait_until(lambda: not is_admitted(of_old))
        assert is_admitted(of_new)
        client.publish("a", b"1")  # a connection that was there before goes on
        client.ack()
    (tmp_path / "ca.pem").write_text("nothing")
    bridge.reload()
    assert is_admitted(of_new)
