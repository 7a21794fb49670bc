"""`ottla console` as a process of its own: a secure cluster behind it, TLS in front of it, who gets in, how it ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from console_kit import TOKEN, Write

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.testing import Certificates, SecureKafka, make_certificates, secure_kafka, wait_until


@dataclass
class Started:
    """A console that listens at `port`, with TLS where `trusts` is given."""

    process: subprocess.Popen[str]
    address: str
    port: int
    errors: list[str]
    trusts: Path | None = None

    def ask(
        self, method: str, path: str, *, body: Any = None, token: str | None = TOKEN, **headers: str
    ) -> tuple[int, Any]:
        """Status and JSON. Header names have underscores."""
        if self.trusts is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        else:
            context = ssl.create_default_context(cafile=str(self.trusts))
            connection = http.client.HTTPSConnection("localhost", self.port, timeout=60, context=context)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        if body is not None:
            given["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body), headers=given)
            answered = connection.getresponse()
            content = answered.read()
            return answered.status, json.loads(content) if path.startswith("/api") else content
        finally:
            connection.close()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ottla", "console", "--port", "0", *arguments]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "OTTLA_CONSOLE_TOKEN": TOKEN, "NO_COLOR": "1", **(more or {})}


@contextmanager
def started(*arguments: str, folder: Path, trusts: Path | None = None, **more: str) -> Iterator[Started]:
    process = subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(more),
    )
    errors: list[str] = []
    assert process.stdout is not None
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
    reader.start()
    try:
        address = process.stdout.readline().strip()
        assert address, "".join(errors)
        yield Started(process, address, _port_of(address, errors), errors, trusts)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        reader.join(30)
        process.stdout.close()
        process.stderr.close()


def _port_of(address: str, errors: list[str]) -> int:
    """The port of the address that is printed; that of a console behind a proxy is said beside it."""
    found = re.search(r":(\d+)/#", address)
    if found:
        return int(found[1])
    said = wait_until(lambda: re.search(r"listening at 127\.0\.0\.1:(\d+) for the proxy", "".join(errors)), 60)
    return int(said[1])


def refused(*arguments: str, folder: Path, **more: str) -> str:
    """What a command says that does not start."""
    ended = subprocess.run(
        command(*arguments), capture_output=True, text=True, cwd=folder, env=environment(more), timeout=120
    )
    assert ended.returncode == 2, (ended.returncode, ended.stderr)
    assert ended.stdout == ""
    return ended.stderr


@pytest.fixture(scope="module")
def secure() -> Iterator[SecureKafka]:
    """One that speaks TLS alone and asks for a name and a password."""
    with secure_kafka("SASL_SSL", mechanism="SCRAM-SHA-512") as running:
        yield running


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def login_of(kafka: SecureKafka) -> tuple[list[str], dict[str, str]]:
    """The options that reach the cluster, and the password in the environment."""
    settings = dict(kafka.settings)
    password = settings.pop("sasl.password")
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return ["-b", kafka.bootstrap_servers, *options], {"OTTLA_CLIENT_SASL_PASSWORD": password}


def test_a_cluster_with_tls_and_scram_is_shown_and_its_password_is_not(secure: SecureKafka, tmp_path: Path) -> None:
    topic = secure.create_topic(secure.fresh_name("vault"))
    options, secret = login_of(secure)
    with started(*options, "--write", folder=tmp_path, **secret) as console:
        status, session = console.ask("GET", "/api/session")
        assert status == 200
        assert secret["OTTLA_CLIENT_SASL_PASSWORD"] not in json.dumps(session)
        found = wait_until(lambda: console.ask("GET", f"/api/topics?match={topic}")[1]["items"], 60)
        assert [each["topic"] for each in found] == [topic]
        record = {"key": "k", "value": "over TLS"}
        status, placed = console.ask("POST", "/api/produce", body={"topic": topic, "record": record})
        assert status == 200, placed
        status, read = console.ask("GET", f"/api/records?topic={topic}&from=earliest")
        assert [each["value"] for each in read["records"]] == ["over TLS"]
        for name in ("cluster", "groups", "doctor", "moves", "letters/topics", f"topic?name={topic}"):
            assert console.ask("GET", f"/api/{name}")[0] == 200, name


def test_a_wrong_password_is_said_and_the_page_is_there(secure: SecureKafka, tmp_path: Path) -> None:
    options, _ = login_of(secure)
    with started(*options, folder=tmp_path, OTTLA_CLIENT_SASL_PASSWORD="not-the-password") as console:
        status, answer = console.ask("GET", "/api/cluster")
        assert (status, answer["error"]["type"]) == (502, "AuthenticationRefused"), answer
        assert "not-the-password" not in json.dumps(answer)
        assert console.ask("GET", "/")[0] == 200
        assert console.ask("GET", "/api/session")[0] == 200


@pytest.mark.complete
def test_another_address_needs_to_be_allowed_and_encrypted(certificates: Certificates, tmp_path: Path) -> None:
    """Nothing is listened at before all of that is said."""
    server = str(certificates.server)
    assert "--allow-remote" in refused("--host", "0.0.0.0", folder=tmp_path)
    assert "--tls-cert" in refused("--host", "0.0.0.0", "--allow-remote", folder=tmp_path)
    assert "wanted both" in refused("--tls-cert", server, folder=tmp_path)
    assert "--tls-key" in refused("--tls-key", server, folder=tmp_path)
    missing = refused("--tls-cert", "none.pem", "--tls-key", "none.pem", folder=tmp_path)
    assert "none.pem" in missing
    assert "Traceback" not in missing
    assert "16 letters" in refused(folder=tmp_path, OTTLA_CONSOLE_TOKEN="short")
    assert "cannot make it" in refused("--write", "--folder", "not-there/undo", folder=tmp_path)
    assert "wanted TOPIC=FILE" in refused("--schema", "orders.avsc", folder=tmp_path)
    assert "none.avsc" in refused("--schema", "orders=none.avsc", folder=tmp_path)


def test_an_address_that_others_reach_speaks_tls(
    cluster: EmbeddedCluster, certificates: Certificates, tmp_path: Path
) -> None:
    server = str(certificates.server)
    options = ["-b", cluster.bootstrap_servers, "--host", "0.0.0.0", "--allow-remote"]
    options += ["--tls-cert", server, "--tls-key", server]
    assert "--name" in refused(*options, folder=tmp_path)
    with started(*options, "--name", "localhost", folder=tmp_path, trusts=certificates.ca) as console:
        assert console.address == f"https://localhost:{console.port}/#token={TOKEN}"
        status, session = console.ask("GET", "/api/session")
        assert (status, session["may_write"]) == (200, False)
        # Any name leads to every address of the machine; it answers under the one that it was given.
        status, answer = console.ask("GET", "/api/session", Host=f"evil.example:{console.port}")
        assert (status, "Host" in answer["error"]["message"]) == (400, True)
        plain = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
        plain.connect()
        with suppress(ConnectionError):
            plain.request("GET", "/")
        with pytest.raises((http.client.BadStatusLine, ConnectionError)):
            plain.getresponse()
        plain.close()


def test_behind_a_proxy_it_answers_under_the_proxys_name_alone(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with started("-b", cluster.bootstrap_servers, "--behind-proxy", "Kafka.example.com", folder=tmp_path) as console:
        assert console.address.startswith("https://Kafka.example.com/#token=")
        named = {"Host": "kafka.example.com"}
        assert console.ask("GET", "/api/session", **named)[0] == 200
        assert console.ask("GET", "/api/session")[0] == 400, "not under the address it listens at"
        assert console.ask("GET", "/", Host="evil.example")[0] == 400
        assert console.ask("GET", "/api/session", token=None, **named)[0] == 401
        # What a proxy says of the client is not believed, and the browser's origin is the proxy's, with HTTPS.
        forwarded = {"X_Forwarded_Host": "kafka.example.com", "X_Forwarded_Proto": "https"}
        assert console.ask("GET", "/api/session", Host="evil.example", **forwarded)[0] == 400
        assert console.ask("GET", "/api/session", Origin="https://kafka.example.com", **named)[0] == 200
        assert console.ask("GET", "/api/session", Origin="http://kafka.example.com", **named)[0] == 403
        cookie = _cookie(console, **named)
        assert "secure" in cookie.lower(), "the browser sends it over HTTPS alone"


def _cookie(console: Started, **headers: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
    try:
        connection.request("POST", "/api/login", headers={"X-Ottla-Token": TOKEN, **headers})
        answered = connection.getresponse()
        answered.read()
        return answered.getheader("set-cookie") or ""
    finally:
        connection.close()


def test_without_write_nothing_is_changed_whoever_asks(
    cluster: EmbeddedCluster, admin: Admin, write: Write, tmp_path: Path
) -> None:
    admin.create_topics({"only-read": TopicSpec(partitions=1)})
    with started("-b", cluster.bootstrap_servers, folder=tmp_path) as console:
        body = {"topic": "only-read", "record": {"value": "v"}}
        status, answer = console.ask("POST", "/api/produce", body=body)
        assert (status, "--write" in answer["error"]["message"]) == (403, True)
        assert console.ask("POST", "/api/produce", body=body, token=None)[0] == 401
        assert console.ask("POST", "/api/produce", body=body, Sec_Fetch_Site="cross-site")[0] == 403
        assert console.ask("GET", "/api/records?topic=only-read&from=earliest")[1]["records"] == []
    assert list(tmp_path.iterdir()) == [], "no audit file either"


def test_a_cluster_that_is_read_only_refuses_write(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """And one that wants its name typed gets it with each change."""
    (tmp_path / "clusters.toml").write_text(
        f'[clusters.prod]\nbootstrap.servers = "{cluster.bootstrap_servers}"\nread_only = true\n'
        f'[clusters.stage]\nbootstrap.servers = "{cluster.bootstrap_servers}"\nconfirm = "name"\n'
    )
    files = {"OTTLA_CLUSTERS": str(tmp_path / "clusters.toml")}
    assert "read_only" in refused("--cluster", "prod", "--write", folder=tmp_path, **files)
    with started("--cluster", "stage", "--write", folder=tmp_path, **files) as console:
        assert console.ask("GET", "/api/session")[1]["asks_name"] is True
        body = {"topic": "orders", "record": {"value": "v"}}
        for typed in ({}, {"confirm": ""}, {"confirm": "prod"}, {"confirm": 7}):
            status, answer = console.ask("POST", "/api/produce", body={**body, **typed})
            assert (status, bool(answer["error"]["message"])) == (400, True), typed


def test_it_ends_at_a_signal_and_leaves_nothing(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        with started("-b", cluster.bootstrap_servers, folder=tmp_path) as console:
            assert console.ask("GET", "/api/cluster")[0] == 200
            console.process.send_signal(number)
            code = console.process.wait(60)
            assert code in (0, 130, 143, -number), "".join(console.errors)
        assert "Traceback" not in "".join(console.errors)


def test_a_port_that_is_taken_is_said(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with started("-b", cluster.bootstrap_servers, folder=tmp_path) as console:
        told = refused("--port", str(console.port), "-b", cluster.bootstrap_servers, folder=tmp_path)
        assert f"cannot listen at 127.0.0.1:{console.port}" in told


def test_the_folder_of_undo_files_is_made_and_one_that_cannot_be_is_said(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    with started("-b", cluster.bootstrap_servers, "--write", "--folder", "./undo", folder=tmp_path):
        assert (tmp_path / "undo").is_dir()
    (tmp_path / "file").touch()
    told = refused("-b", cluster.bootstrap_servers, "--write", "--folder", "file/undo", folder=tmp_path)
    assert "--folder file/undo: found no folder, and cannot make it: Not a directory" in told
