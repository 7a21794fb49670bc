"""`ottla schemas` and a registry that wants a login or TLS, refuses changes, or dies: clear errors, and no secret."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.browse.registry_access import RegistryAccess
from ottla.cli import main
from ottla.serdes import SchemaRegistry
from ottla.serdes.registry_admin import RegistryAdmin
from ottla.testing.registry import EmbeddedRegistry
from ottla.testing.registry.log import MemoryLog
from ottla.testing.registry.state import LogRecord
from ottla.testing.secure import Certificates, make_certificates

SECRET = "corr3ct-h0rse"
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}


def run(*arguments: str, **env: str) -> Result:
    ended = CliRunner().invoke(main, ["schemas", *arguments], env=env)
    assert SECRET not in ended.output
    return ended


@pytest.fixture
def guarded() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry(users={"ops": SECRET, "reader": SECRET}, read_only={"reader"}) as running:
        SchemaRegistry(running.url, user="ops", password=SECRET).register("orders-value", json.dumps(ORDER))
        yield running


def test_a_login_is_taken_from_the_environment_and_from_the_address(guarded: EmbeddedRegistry) -> None:
    env = {"OTTLA_REGISTRY": guarded.url, "OTTLA_REGISTRY_PASSWORD": SECRET}
    assert run("list", "--registry-user", "ops", **env).stdout.startswith("orders-value")
    assert run("list", OTTLA_REGISTRY_USER="ops", **env).exit_code == 0
    address = guarded.url.replace("://", f"://ops:{SECRET}@")
    assert run("list", "--registry", address).exit_code == 0
    for user, password in (("ops", "wrong-one"), ("stranger", SECRET)):
        refused = run("list", OTTLA_REGISTRY=guarded.url, OTTLA_REGISTRY_USER=user, OTTLA_REGISTRY_PASSWORD=password)
        assert refused.exit_code == 2
        assert "HTTP 401" in refused.stderr
        assert "check user and password" in refused.stderr
        assert password not in refused.output
    both = run("list", "--registry-user", "ops", OTTLA_REGISTRY_TOKEN=SECRET, **env)
    assert (both.exit_code, "found a token and a user" in both.stderr) == (2, True)
    assert run("list", OTTLA_REGISTRY=guarded.url, OTTLA_REGISTRY_TOKEN=SECRET).exit_code == 2
    broken = run("list", OTTLA_REGISTRY=guarded.url, OTTLA_REGISTRY_TOKEN=f"{SECRET}\n")
    assert (broken.exit_code, "a line break" in broken.stderr) == (2, True)


def test_who_may_only_read_is_refused_changes(guarded: EmbeddedRegistry, tmp_path: Path) -> None:
    env = {"OTTLA_REGISTRY": guarded.url, "OTTLA_REGISTRY_USER": "reader", "OTTLA_REGISTRY_PASSWORD": SECRET}
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(WIDER))
    assert run("show", "orders-value", **env).exit_code == 0
    assert run("check", "orders-value", str(file), **env).exit_code == 0
    for line in (
        ["register", "orders-value", str(file)],
        ["delete", "orders-value", "--undo", str(tmp_path / "before.json")],
        ["set-compatibility", "NONE"],
    ):
        refused = run(*line, "--yes", **env)
        assert refused.exit_code == 1, "the request was sent"
        assert "HTTP 403 (40301: 'User reader may read only')" in refused.stderr
    admin = RegistryAdmin(guarded.url, user="ops", password=SECRET)
    assert (admin.versions("orders-value"), admin.level()) == ([1], "BACKWARD")


def test_a_secret_is_in_no_repr() -> None:
    access = RegistryAccess(url=f"http://ops:{SECRET}@127.0.0.1:1", password=SECRET, token=SECRET, key_password=SECRET)
    assert SECRET not in repr(access)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_certificates_of_both_sides_are_checked(certificates: Certificates) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    context.load_verify_locations(certificates.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    with EmbeddedRegistry(tls=context) as running:
        assert running.url.startswith("https://127.0.0.1:")
        trusted = ("--registry", running.url, "--registry-ca", str(certificates.ca))
        own = ("--registry-certificate", str(certificates.client))
        listed = run("list", *trusted, *own)
        assert (listed.exit_code, listed.stderr) == (0, "no subjects\n")
        assert run("list", OTTLA_REGISTRY=running.url, OTTLA_REGISTRY_CA=str(certificates.ca)).exit_code == 2
        stranger = run("list", "--registry", running.url, *own)
        assert stranger.exit_code == 2
        assert "certificate verify failed" in stranger.stderr
        without = run("list", *trusted)
        assert without.exit_code == 2


class RefusingLog(MemoryLog):
    """Takes this many records: then the disk of its broker is full."""

    def __init__(self, room: int) -> None:
        self.room = room

    def append(self, records: Sequence[LogRecord]) -> None:
        if len(records) > self.room:
            raise OSError("No space left on device")
        self.room -= len(records)


def filled(registry: EmbeddedRegistry, *, then: int) -> RegistryAdmin:
    """Two versions; after them there is room for so many records."""
    log = RefusingLog(2 + then)
    registry._log = log
    admin = RegistryAdmin(registry.url, attempts=1)
    admin.register("orders-value", json.dumps(ORDER))
    admin.register("orders-value", json.dumps(WIDER))
    return admin


def test_a_deletion_that_ends_half_way_is_not_called_done_and_is_undone(tmp_path: Path) -> None:
    with EmbeddedRegistry() as running:
        admin = filled(running, then=1)
        undo = tmp_path / "before.json"
        ended = run("delete", "orders-value", "--undo", str(undo), "--yes", "--registry", running.url)
        assert ended.exit_code == 1
        assert "No space left on device" in ended.stderr
        assert "deleted, all" not in ended.stderr
        assert "ottla schemas restore" in ended.stderr
        assert admin.all_versions("orders-value") == [2]
        running._log = MemoryLog()
        assert run("restore", str(undo), "--yes", "--registry", running.url).exit_code == 0
        assert [admin.version("orders-value", n).id for n in admin.all_versions("orders-value")] == [2, 1]


@pytest.mark.parametrize("line", ["register orders-value new.avsc --yes", "set-compatibility NONE --yes"])
def test_a_change_that_the_registry_cannot_keep_is_not_called_done(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("new.avsc").write_text(json.dumps({**ORDER, "fields": []}))
    with EmbeddedRegistry() as running:
        admin = filled(running, then=0)
        ended = run(*line.split(), "--registry", running.url)
        assert ended.exit_code == 1
        assert "RegistryUnavailable" in ended.stderr
        assert "registered" not in ended.stderr
        assert (admin.all_versions("orders-value"), admin.level()) == ([1, 2], "BACKWARD")


def test_a_registry_that_is_gone_is_named(tmp_path: Path) -> None:
    with EmbeddedRegistry() as running:
        url = running.url
    ended = run("list", "--registry", url.replace("://", f"://ops:{SECRET}@"))
    assert ended.exit_code == 2
    assert url in ended.stderr
    assert "Connection refused" in ended.stderr


def test_a_body_that_is_too_large_is_not_read() -> None:
    with EmbeddedRegistry() as running:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(running.url).netloc, timeout=10)
        connection.putrequest("POST", "/subjects/a/versions")
        connection.putheader("Content-Length", str(1 << 40))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()
        assert RegistryAdmin(running.url, attempts=1).subjects() == []


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/subjects/a/versions", "[]", 42201),
        ("/subjects/a/versions", "{", 400),
        ("/subjects/a/versions", "[" * 100_000, 400),
        ("/subjects/a/versions", "{}", 42201),
        ("/subjects/a/versions", '{"schema": 7}', 42201),
        ("/subjects/a/versions", '{"schema": "{", "schemaType": "JSON"}', 42201),
        ("/subjects/a/versions", '{"schema": "\\"long\\"", "references": [{"name": "x"}]}', 42201),
        ("/subjects/a/versions", '{"schema": "\\"long\\"", "references": 7}', 42201),
    ],
)
def test_a_body_that_is_no_schema_is_refused_by_the_embedded_registry(path: str, body: str, code: int) -> None:
    with EmbeddedRegistry() as running:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(running.url).netloc, timeout=10)
        connection.request("POST", path, body=body.encode())
        response = connection.getresponse()
        assert (response.status // 100, json.loads(response.read())["error_code"]) == (4, code)
        connection.close()
        assert RegistryAdmin(running.url, attempts=1).subjects() == []
