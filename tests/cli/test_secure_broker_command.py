"""`ottla broker start` with TLS and SASL: a process that other languages connect to, with certificates made for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from broker_embedded.process import main
from ottla.cli import main as ottla_main
from ottla.columnar import read, write
from ottla.errors import AuthenticationError


def test_a_broker_with_certificates_made_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    options = [
        "--topics",
        "orders",
        "--security-protocol",
        "SASL_SSL",
        "--user",
        "alice=a=b",
        "--client-auth",
        "required",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "broker", "start", *options, "--certificates", folder, "--log-level", "error"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready, _, servers = process.stdout.readline().strip().partition("=")
        assert ready == "ready bootstrap"
        settings = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "a=b",
            "ssl.ca.location": folder / "ca.pem",
            "ssl.certificate.location": folder / "client.pem",
        }
        write("orders", pa.table({"value": ["one"]}), settings=settings)
        assert read("orders", settings=settings).read_all()["value"].to_pylist() == [b"one"]
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert {path.name for path in folder.iterdir()} == {"ca.pem", "server.pem", "client.pem", "stranger.pem"}
    assert (folder / "server.pem").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "program", [("ottla", "broker", "start"), pytest.param(("broker_embedded",), marks=pytest.mark.complete)]
)
def test_passwords_come_from_a_file_and_are_no_arguments(tmp_path: Path, program: tuple[str, ...]) -> None:
    (tmp_path / "users").write_text("alice=s3cret=\n\nbob=0ther\n")
    options = ["--security-protocol", "SASL_PLAINTEXT", "--users", str(tmp_path / "users"), "--topics", "orders"]
    process = subprocess.Popen(
        [sys.executable, "-m", *program, *options, "--log-level", "error"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        servers = process.stdout.readline().strip().partition("=")[2]
        settings = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
        }
        for name, password in (("alice", "s3cret="), ("bob", "0ther")):
            login = {**settings, "sasl.username": name, "sasl.password": password}
            assert read("orders", settings=login).read_all().num_rows == 0
        assert b"s3cret" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"alice=a\ns3cret\n", "users, line 2: wanted NAME=PASSWORD"),
        (b"=s3cret\n", "line 1: wanted NAME=PASSWORD"),
        (b"s3cret=\n", "line 1: wanted NAME=PASSWORD"),
        (b"s3cret\xff", "wanted text in UTF-8"),
        (b"s3cret=x\n" * 200_000, "found more than 1,048,576 bytes"),
        (None, "cannot be read: No such file"),
    ],
)
@pytest.mark.parametrize("command", [("broker", "start"), ("registry", "start", "--memory")])
def test_a_file_of_users_that_cannot_be_read_is_refused_without_a_password(
    tmp_path: Path, text: bytes | None, said: str, command: tuple[str, ...]
) -> None:
    if text is not None:
        (tmp_path / "users").write_bytes(text)
    refused = CliRunner().invoke(ottla_main, [*command, "--port", "0", "--users", str(tmp_path / "users")])
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert "s3cret" not in refused.output


@pytest.mark.parametrize("command", [("broker", "start"), ("registry", "start", "--memory"), ()])
def test_a_user_that_is_also_in_the_file_is_refused(
    tmp_path: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "users").write_text("alice=s3cret\n")
    options = ["--user", "alice=s3cret2", "--users", str(tmp_path / "users")]
    if command:
        refused = CliRunner().invoke(ottla_main, [*command, "--port", "0", *options])
        code, said = refused.exit_code, refused.output
    else:
        code, said = main(options), capsys.readouterr().err
    assert (code, "found 'alice' in --user and in --users, wanted one of them" in said) == (2, True), said
    assert "s3cret" not in said


def test_a_broker_that_takes_tokens() -> None:
    options = ["--topics", "orders", "--security-protocol", "SASL_PLAINTEXT", "--sasl-mechanism", "OAUTHBEARER"]
    options += ["--oauth", "scope=kafka", "--max-reauth-ms", "OAUTHBEARER=60000", "--log-level", "error"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "broker", "start", *options], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        servers = process.stdout.readline().strip().partition("=")[2]
        settings = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=alice scope=kafka",
        }
        write("orders", pa.table({"value": ["one"]}), settings=settings)
        assert read("orders", settings=settings).read_all()["value"].to_pylist() == [b"one"]
        with pytest.raises(AuthenticationError, match="insufficient_scope"):
            read("orders", settings={**settings, "sasl.oauthbearer.config": "principal=alice"}).read_all()
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--oauth", "issuer=x"], "oauth: --security-protocol is missing"),
        (["--security-protocol", "SASL_PLAINTEXT", "--oauth", "issuer=x"], "oauth: found without OAUTHBEARER"),
        (["--oauth", "isuer=x"], "--oauth: found 'isuer', wanted one of"),
        (["--max-reauth-ms", "PLAIN=soon"], "--max-reauth-ms: PLAIN: found 'soon'"),
        (["--oauth", "issuer=x", "--oauth", "issuer=y"], "--oauth: found 'issuer' twice, wanted it once"),
        (["--max-reauth-ms", "PLAIN=1", "--max-reauth-ms", "PLAIN=2"], "--max-reauth-ms: found 'PLAIN' twice"),
        (["--set", "log.retention.ms=1", "--set", "log.retention.ms=2"], "--set: found 'log.retention.ms' twice"),
        (["--user", "alice=secret"], "users: --security-protocol is missing"),
        (["--security-protocol", "SASL_PLAINTEXT", "--user", "alice"], "--user: wanted NAME=PASSWORD"),
        (["--user", "alice=a", "--user", "alice=b"], "--user: found 'alice' twice, wanted it once"),
        (["--security-protocol", "SSL"], "SSL needs the broker's certificate"),
        (["--security-protocol", "SSL", "--certificate", "/nowhere/x.pem"], "/nowhere/x.pem: No such file"),
        (
            ["--security-protocol", "SSL", "--certificates", "/dev/null", "--certificate", "x.pem"],
            "--certificates has the files",
        ),
        (["--security-protocol", "SSL", "--certificates", "/dev/null/x"], "cannot be put into /dev/null/x: Not a dir"),
        (["--security-protocol", "TLS"], "security protocol: found 'TLS', wanted PLAINTEXT"),
    ],
)
def test_what_it_cannot_start_with_is_said(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
