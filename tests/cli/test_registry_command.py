"""`ottla registry start`: a registry as a process, whose schemas survive it, and which says what is open."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker_embedded.cluster import EmbeddedCluster
from ottla.cli import main
from ottla.errors import RegistryUnavailable
from ottla.serdes.registry_admin import RegistryAdmin
from ottla.testing.registry import EmbeddedRegistry
from ottla.testing.secure import make_certificates

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[subprocess.Popen[str]] = []

    def run(*arguments: str, servers: str = "127.0.0.1:1") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ottla", "registry", "start", "--port", "0", *arguments]
        env = {**os.environ, "OTTLA_BOOTSTRAP_SERVERS": servers}
        pipe = subprocess.PIPE
        begun.append(subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True))
        return begun[-1]

    yield run
    for process in begun:
        process.kill()
        process.communicate()


def url_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("ready registry="), process.communicate()[1]
    return line.removeprefix("ready registry=").strip()


def test_schemas_are_there_after_a_registry_that_was_killed(start: Start) -> None:
    with EmbeddedCluster() as cluster:
        first = start(servers=cluster.bootstrap_servers)
        url = url_of(first)
        assert url.startswith("http://127.0.0.1:")
        admin = RegistryAdmin(url)
        assert admin.register("orders-value", ORDER) == 1
        admin.set_compatibility("FULL", "orders-value")
        first.kill()
        first.communicate()
        second = start(servers=cluster.bootstrap_servers)
        found = RegistryAdmin(url_of(second))
        assert (found.version("orders-value").text, found.level("orders-value")) == (ORDER, "FULL")
        second.send_signal(signal.SIGTERM)
        assert second.communicate(timeout=60) == ("", "")
        assert second.returncode == 0


def test_a_schema_that_the_cluster_did_not_keep_is_not_called_registered() -> None:
    with EmbeddedCluster() as cluster, EmbeddedRegistry(cluster.bootstrap_servers) as running:
        admin = RegistryAdmin(running.url, attempts=1, timeout_s=60)
        cluster.kill(1)
        with pytest.raises(RegistryUnavailable):
            admin.register("orders-value", ORDER)
        assert admin.subjects() == []
        cluster.start_broker(1)
        assert RegistryAdmin(running.url).register("orders-value", ORDER) == 1


def test_in_memory_it_needs_no_cluster_and_says_who_may_do_what(start: Start, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    (tmp_path / "users").write_text("app=s3cret\n")
    (tmp_path / "readers").write_text("ci=0ther\n")
    users = ("--users", str(tmp_path / "users"), "--read-only-users", str(tmp_path / "readers"))
    opened = start("--memory", "--host", "0.0.0.0", *users, "--tls-cert", str(certificates.server))
    url = url_of(opened).replace("0.0.0.0", "127.0.0.1")
    line = ["schemas", "list", "--registry", url, "--registry-ca", str(certificates.ca), "--registry-user", "ci"]
    assert CliRunner().invoke(main, line, env={"OTTLA_REGISTRY_PASSWORD": "0ther"}).exit_code == 0
    assert CliRunner().invoke(main, line, env={"OTTLA_REGISTRY_PASSWORD": "s3cret"}).exit_code == 2
    opened.send_signal(signal.SIGINT)
    _, said = opened.communicate(timeout=60)
    assert opened.returncode == 0
    assert "every machine that reaches it needs a login" in said
    assert "encrypted. For development only" in said
    assert "s3cret" not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--user", "s3cret"], "--user: wanted NAME=PASSWORD"),
        (["--user", "a:b=s3cret"], "--user: wanted NAME=PASSWORD"),
        (["--user", "a=s3cret", "--read-only-user", "a=s3cret"], "found 'a' in --user and in --read-only-user"),
        (["--user", "a=s3cret", "--user", "a=s3cret2"], "--user: found 'a' twice, wanted it once"),
        (["--tls-key", "x.pem"], "found --tls-key without --tls-cert"),
        (["--tls-cert", "x.pem"], "wanted a readable certificate"),
        (["--host", "203.0.113.1"], "cannot listen at 203.0.113.1"),
        (["--host", "no such host"], "cannot listen at no such host"),
    ],
)
def test_what_cannot_be_started_is_refused_in_a_line(arguments: list[str], said: str) -> None:
    refused = CliRunner().invoke(main, ["registry", "start", "--memory", "--port", "0", *arguments])
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert "s3cret" not in refused.output


def test_a_port_that_is_taken_and_a_cluster_that_is_not_there_are_named() -> None:
    with EmbeddedRegistry() as running:
        port = running.url.rpartition(":")[2]
        taken = CliRunner().invoke(main, ["registry", "start", "--memory", "--port", port])
    assert (taken.exit_code, "Address already in use" in taken.stderr) == (2, True)
    missing = CliRunner().invoke(main, ["registry", "start", "--port", "0", "-b", "127.0.0.1:1"])
    assert (missing.exit_code, "127.0.0.1:1" in missing.stderr) == (2, True)
