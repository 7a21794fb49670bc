"""What every command shares: which cluster it reaches, what it prints, how it asks, how it ends."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from command_output import document
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli import COMMANDS, main
from ottla.cli.shared import consent as consent_module
from ottla.cli.shared.cluster_options import cluster_settings, reaches_a_cluster
from ottla.cli.shared.clusters_file import parse_clusters, read_clusters
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.output import Format, Output
from ottla.cli.shared.progress import ProgressLine, line
from ottla.cli.shared.properties_file import read_properties
from ottla.cli.shared.visible import visible
from ottla.config import Settings
from ottla.errors import ConfigError
from ottla.testing import Kafka

CLUSTERS = """
use = "dev"
[clusters.dev]
bootstrap.servers = "dev:9092"
[clusters.prod]
bootstrap.servers = "prod:9093"
security.protocol = "SASL_SSL"
sasl.mechanism = "PLAIN"
sasl.username = "ops"
sasl.password_env = "PROD_PASSWORD"
read_only = true
[clusters.careful]
bootstrap.servers = "careful:9092"
confirm = "name"
"""


@pytest.fixture
def clusters_file(tmp_path: Path) -> Path:
    path = tmp_path / "clusters.toml"
    path.write_text(CLUSTERS)
    path.chmod(0o600)
    return path


@pytest.fixture
def reach(clusters_file: Path) -> Callable[..., Result]:
    """Which address, user and password a command gets."""

    @click.command()
    @reaches_a_cluster
    def command(kafka: Settings) -> None:
        click.echo(" ".join(str(kafka.get(name)) for name in ("bootstrap.servers", "sasl.username", "sasl.password")))

    @click.command()
    @reaches_a_cluster
    @changes
    def change(kafka: Settings, consent: Consent) -> None:
        click.echo("changed" if consent.agree("Change it?") else "not changed")

    def run(*arguments: str, answer: str | None = None, **environment: str) -> Result:
        is_change = "change" in arguments
        given = [each for each in arguments if each != "change"]
        env = {"OTTLA_CLUSTERS": str(clusters_file), **environment}
        return CliRunner().invoke(change if is_change else command, given, env=env, input=answer)

    return run


@pytest.mark.parametrize(
    ("arguments", "environment", "reached"),
    [
        ([], {}, "dev:9092 None None"),
        (["-b", "other:9092"], {}, "other:9092 None None"),
        ([], {"OTTLA_BOOTSTRAP_SERVERS": "env:9092"}, "env:9092 None None"),
        ([], {"OTTLA_CLIENT_BOOTSTRAP_SERVERS": "env:9092", "OTTLA_CLUSTER": "prod"}, "env:9092 None None"),
        ([], {"OTTLA_CLUSTER": "prod", "PROD_PASSWORD": "s3"}, "prod:9093 ops s3"),
        (["--cluster", "prod"], {"OTTLA_BOOTSTRAP_SERVERS": "env:1", "PROD_PASSWORD": "s3"}, "prod:9093 ops s3"),
        (["--cluster", "prod", "--set", "sasl.username=me"], {"PROD_PASSWORD": "s3"}, "prod:9093 me s3"),
    ],
)
def test_a_cluster_is_chosen_whole(reach, arguments: list[str], environment: dict[str, str], reached: str) -> None:
    assert reach(*arguments, **environment).output.strip() == reached


def test_a_list_of_clusters_prints_no_secret_within_a_setting(clusters_file: Path) -> None:
    clusters_file.write_text(
        CLUSTERS
        + """
[clusters.kerberos]
bootstrap.servers = "k:9092"
sasl.kerberos.kinit.cmd = "echo hunter2 | kinit me"
sasl.oauthbearer.token.endpoint.url = "https://me:hunter2@issuer/token"
"""
    )
    environment = {"OTTLA_CLUSTERS": str(clusters_file)}
    for form in ("json", "table", "plain"):
        result = CliRunner().invoke(main, ["contexts", "list", "--format", form], env=environment)
        assert result.exit_code == 0, result.output
        assert "kerberos" in result.output
        assert "hunter2" not in result.output
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.config_command or sasl\.oauthbearer\.config_env"):
        parse_clusters(
            b'[clusters.a]\nbootstrap.servers = "a:1"\nsasl.oauthbearer.config = "clientSecret=hunter2"\n', Path("c")
        )


def test_a_password_never_goes_to_another_clusters_address(reach) -> None:
    refused = reach("--cluster", "prod", "-b", "elsewhere:9092", PROD_PASSWORD="s3")
    assert "wanted one of them" in str(refused.exception)
    assert "s3" not in reach("-b", "elsewhere:9092", OTTLA_CLUSTER="prod", PROD_PASSWORD="s3").output


def test_a_cluster_that_is_not_there_gets_the_nearest_name(reach) -> None:
    assert "Did you mean 'prod'?" in str(reach("--cluster", "prd").exception)


def test_a_read_only_cluster_takes_dry_runs_alone(reach) -> None:
    refused = reach("change", "--cluster", "prod", "--yes", PROD_PASSWORD="x")
    assert "cluster prod is read_only" in str(refused.exception)
    assert "not changed" in reach("change", "--cluster", "prod", "--dry-run", PROD_PASSWORD="x").output


def test_without_a_terminal_a_change_wants_yes(reach) -> None:
    assert "--yes agrees" in str(reach("change", answer="y\n").exception)
    assert reach("change", "--yes").output == "changed\n"


@pytest.mark.parametrize(
    ("cluster", "answer", "said", "code"),
    [
        ("dev", "y\n", "changed\n", 0),
        ("dev", "n\n", "nothing was changed\n", 2),
        ("careful", "careful\n", "changed\n", 0),
        ("careful", "y\n", "nothing was changed\n", 2),
    ],
)
def test_a_terminal_is_asked(reach, monkeypatch, cluster: str, answer: str, said: str, code: int) -> None:
    monkeypatch.setattr(consent_module, "is_terminal", lambda _stream: True)
    options = ["--yes"] if cluster == "careful" else []
    ended = reach("change", "--cluster", cluster, *options, answer=answer)
    assert (ended.exit_code, ended.output.endswith(said)) == (code, True), ended.output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[clusters.a]\n", "bootstrap.servers is missing"),
        ('[clusters.a]\nbootstrap.servers = "a:1"\nsasl.password = "hunter2"\n', "a secret does not belong"),
        ('[clusters.a]\nbootstrap.servers = "a:1"\nread_only = "yes"\n', "wanted true or false"),
        ('[clusters.a]\nbootstrap.servers = "a:1"\nconfirm = true\n', "wanted 'name'"),
        ('[clusters.a]\nbootstrap.servers = "a:1"\nsasl.password_command = []\n', "wanted a command"),
        ('[clusters.a]\nbootstrap.servers = "a:1"\nacks = []\n', "wanted text"),
        ("clusters = 3\n", "wanted tables"),
        ('use = "b"\n', "none of its clusters"),
        ("tables = 3\n", "found 'tables'"),
        ("\xff", "not valid TOML"),
    ],
)
def test_a_clusters_file_that_cannot_be_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        parse_clusters(text.encode("latin-1"), Path("clusters.toml"))
    assert "hunter2" not in str(error.value)


@given(st.binary(max_size=200))
def test_a_clusters_file_of_any_bytes_is_read_or_refused(data: bytes) -> None:
    try:
        parse_clusters(data, Path("clusters.toml"))
    except ConfigError:
        pass


def test_a_file_that_others_may_write_is_not_read(clusters_file: Path) -> None:
    clusters_file.chmod(0o620)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_clusters(clusters_file)


def test_a_secret_comes_from_a_command_and_is_never_shown(tmp_path: Path) -> None:
    def password(program: str) -> str:
        command = json.dumps([sys.executable, "-c", program])
        text = f'[clusters.a]\nbootstrap.servers = "a:1"\nsasl.password_command = {command}\n'
        return parse_clusters(text.encode(), tmp_path / "c.toml").named("a").resolved()["sasl.password"]

    assert password("print('hunter2\\nsecond line')") == "hunter2"
    for program in ("print('hunter2'); raise SystemExit(3)", "pass"):
        with pytest.raises(ConfigError, match=r"sasl\.password_command") as error:
            password(program)
        assert "hunter2" not in str(error.value)


def test_clusters_are_added_used_listed_and_checked(tmp_path: Path, kafka: Kafka) -> None:
    path = tmp_path / "new" / "config.toml"

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["contexts", *arguments], env={"OTTLA_CLUSTERS": str(path)})

    made = document(run("add", "here", "-b", kafka.bootstrap_servers, "--format", "json"), "ottla.clusters.add/1")
    assert (made["name"], made["file"]) == ("here", str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    options = ["-b", "x:1", "--set", "security.protocol=SASL_SSL", "--set", "sasl.username=ops"]
    options += ["--password-env", "P", "--read-only"]
    unfinished = run("add", "other", *options)
    assert unfinished.exit_code == 2
    assert "sasl.mechanism" in unfinished.output
    added = run("add", "other", *options, "--set", "sasl.mechanism=PLAIN")
    assert added.exit_code == 0, added.output
    assert document(run("use", "here", "--format", "json"), "ottla.clusters.use/1")["name"] == "here"
    assert run("use", "other").exit_code == 0
    listed = json.loads(run("list", "--format", "json").output)
    assert listed["schema"] == "ottla.clusters.list/1"
    assert [(each["name"], each["used"], each["read_only"], each["secrets"]) for each in listed["items"]] == [
        ("here", False, False, {}),
        ("other", True, True, {"sasl.password": "env"}),
    ]
    assert f"answered\t{kafka.bootstrap_servers}" in run("check", "here").output
    assert run("add", "here", "-b", "x:1").exit_code == 2
    refused = run("add", "bad", "-b", "x:1", "--set", "sasl.password=hunter2")
    assert refused.exit_code == 2
    assert "hunter2" not in refused.output + path.read_text()
    assert run("check", "hre").exit_code == 2


def test_a_properties_file_is_settings(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# ours\nbootstrap.servers = a:1\n\nclient.id=me=you\n")
    assert read_properties(path) == {"bootstrap.servers": "a:1", "client.id": "me=you"}
    assert cluster_settings(None, read_properties(path), environ={})["bootstrap.servers"] == "a:1"
    path.write_text("\n= hunter2")
    with pytest.raises(ConfigError, match="line 2: found no name, wanted NAME=VALUE") as error:
        read_properties(path)
    assert "hunter2" not in str(error.value)


CONFLUENT = """
# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers=pkc-x.eu-central-1.aws.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='KEY' password='SECRET';
sasl.mechanism=PLAIN
# Required for correctness in Apache Kafka clients prior to 2.6
client.dns.lookup=use_all_dns_ips
# Best practice for higher availability in Apache Kafka clients prior to 3.0
session.timeout.ms=45000
# Best practice for Kafka producer to prevent data loss
acks=all
"""
LOGIN = {"sasl.username": "KEY", "sasl.password": "SECRET"}
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **LOGIN}
SCRAM = b"org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (CONFLUENT.encode(), {**SASL, "bootstrap.servers": "pkc-x.eu-central-1.aws.confluent.cloud:9092",
                              "sasl.mechanism": "PLAIN", "client.dns.lookup": "use_all_dns_ips"}),
        (b"security.protocol: SASL_SSL\nsasl.mechanism:PLAIN\nsasl.username : KEY\nsasl.password:SECRET\n", SASL),
        (b"security.protocol SASL_SSL\nsasl.mechanism PLAIN\nsasl.username  KEY\nsasl.password\tSECRET", SASL),
        (b"\xef\xbb\xbfsecurity.protocol=SASL_SSL\r\nsasl.mechanism=PLAIN\r\nsasl.username=KEY \r\n"
         b"sasl.password=SECRET\r\n", SASL),
        (b'security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config=' + SCRAM
         + b' required \\\n   username="KEY" \\\n\tpassword="SECRET";', {**SASL, "sasl.mechanism": "SCRAM-SHA-512"}),
        (b"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/ca.pem\nssl.endpoint.identification.algorithm=\n",
         {"security.protocol": "SSL", "ssl.ca.location": "/ca.pem", "ssl.endpoint.identification.algorithm": "none"}),
        (b"security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location=/me.pem\nssl.key.password=x\n",
         {"security.protocol": "SSL", "ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem",
          "ssl.key.password": "x"}),
        (b"! theirs\n  client.id = a\\u00e9\\tb\nclient.id\\ =x\n", "no admin client setting|no admin setting"),
        ("client.id=Zo\u00eb".encode("latin-1"), {"client.id": "Zo\u00eb"}),
        ("client.id=Zo\u00eb".encode(), {"client.id": "Zo\u00eb"}),
        (b"group.id=g\nkey.deserializer=x.Y\nmax.poll.records=5\nlinger.ms=5\nmetrics.recording.level=INFO\n", {}),
        (b"ssl.truststore.location=/trust.jks\nssl.truststore.password=SECRET", "found a Java key store, wanted PEM"),
        (b"sasl.jaas.config=a.b.KerberosModule required useKeyTab=true password='SECRET';", "found a.b.KerberosModule"),
        (b"sasl.mechanims=PLAIN\n", "did you mean sasl.mechanism"),
    ],
)  # fmt: skip
def test_files_of_kafkas_own_tools_are_read(tmp_path: Path, text: bytes, settings: dict[str, str] | str) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(text)
    if isinstance(settings, str):
        with pytest.raises(ConfigError, match=settings) as error:
            cluster_settings("a:1", read_properties(path), environ={})
        assert "SECRET" not in str(error.value)
        return
    assert read_properties(path) == settings
    cluster_settings(settings.get("bootstrap.servers", "a:1"), read_properties(path), environ={})


def test_what_a_file_has_for_other_clients_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "client.properties"
    path.write_text("acks=all\nkey.serializer=x.Y\nclient.id=me\n")
    assert read_properties(path) == {"client.id": "me"}
    assert capsys.readouterr().err == f"{path}: not used here: acks, key.serializer\n"
    assert read_properties(path, role="producer") == {"client.id": "me", "acks": "all"}


ITEMS = [{"topic": "a\tb\x1b[31m", "bytes": 1234567, "tags": ["x"], "none": None}, {"topic": "日本", "bytes": 5}]
COLUMNS = ("topic", "bytes")


def printed(format: Format, capsys: pytest.CaptureFixture[str], *, header: bool = False) -> str:
    Output(format, header=header).items("topics.list/1", COLUMNS, ITEMS, of="all")
    return capsys.readouterr().out


def test_a_table_is_aligned_and_never_cut(capsys) -> None:
    assert [each.rstrip() for each in printed(Format.TABLE, capsys).splitlines()] == [
        "topic" + " " * 13 + "bytes",
        "a\\tb\\x1b[31m  1,234,567",
        "日本" + " " * 18 + "5",
    ]


def test_one_long_name_widens_its_own_line_alone(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    items = [{"topic": "n" * 249, "bytes": 1}, {"topic": "orders", "bytes": 22}]
    Output(Format.TABLE).items("topics.list/1", COLUMNS, items)
    title, long, short = capsys.readouterr().out.splitlines()
    assert (title.split(), len(title)) == (["topic", "bytes"], 13)
    assert long == "n" * 249 + "      1"
    assert short == "orders     22"
    Output(Format.TABLE).items("topics.list/1", COLUMNS, [{"topic": "n" * 80, "bytes": 1}, items[1]])
    assert {len(line) for line in capsys.readouterr().out.splitlines()} == {87}, "what fits is aligned"


def test_plain_is_one_line_per_item(capsys) -> None:
    assert printed(Format.PLAIN, capsys) == "a\\tb\\x1b[31m\t1234567\n日本\t5\n"
    assert printed(Format.PLAIN, capsys, header=True).splitlines()[0] == "topic\tbytes"


def test_json_is_one_document_with_its_schema(capsys) -> None:
    assert json.loads(printed(Format.JSON, capsys)) == {"schema": "ottla.topics.list/1", "of": "all", "items": ITEMS}
    Output(Format.JSON).items("topics.list/1", COLUMNS, [])
    assert json.loads(capsys.readouterr().out) == {"schema": "ottla.topics.list/1", "items": []}


@given(st.text())
def test_nothing_that_is_shown_moves_a_cursor(text: str) -> None:
    shown = visible(text)
    assert all(ord(each) >= 32 and not 0x7F <= ord(each) <= 0x9F for each in shown)
    assert not set(shown) & set("\u202e\u2066\u2028")


def test_progress_speaks_to_a_person_after_a_second() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    at = [0.0]
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        at[0] = 0.0
        with ProgressLine("read", total=100, stream=stream, now=lambda: at[0]) as progress:
            progress.advance(10)
            at[0] = 2.0
            progress.advance(10)
    assert terminal.getvalue() == "\r\x1b[Kread 20 of 100 (20 %), 10/s, 8 s left\r\x1b[K"
    assert pipe.getvalue() == ""
    assert line("read", 5, None, 0.0) == "read 5, 0/s"


@pytest.mark.parametrize(
    ("before", "today"),
    [
        (["topics", "trim"], ["topics", "delete-records"]),
        (["groups", "forget"], ["groups", "delete-offsets"]),
        (["offsets", "show"], ["store-offsets", "show"]),
        (["clusters", "list"], ["contexts", "list"]),
        (["scheduler", "run"], ["schedule", "run"]),
    ],
)
def test_an_old_name_of_a_command_works_and_names_the_new_one(before: list[str], today: list[str]) -> None:
    with_old, with_new = (CliRunner().invoke(main, [*path, "--help"]) for path in (before, today))
    assert with_old.exit_code == with_new.exit_code == 0
    old, new = next((old, new) for old, new in zip(before, today, strict=True) if old != new)
    assert with_old.stderr == f"ottla: {old!r} is called {new!r} since 0.2; the old name goes with 0.3\n"
    assert with_new.stderr == ""
    assert with_old.stdout == with_new.stdout.replace(" ".join(today), " ".join(before), 1)
    assert f"  {old} " not in CliRunner().invoke(main, [*before[: before.index(old)], "--help"]).stdout


@pytest.mark.parametrize("path", [["topics", "lst"], ["dlq", "sow"], ["contexts", "chek"], ["broker", "strt"]])
def test_every_level_suggests(path: list[str]) -> None:
    ended = CliRunner().invoke(main, path)
    assert ended.exit_code == 2
    assert "Did you mean" in ended.output


def test_every_group_suggests() -> None:
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert not isinstance(command, click.Group) or isinstance(command, CommandGroup), name


def test_a_reader_that_goes_away_ends_a_command_quietly(tmp_path: Path) -> None:
    path = tmp_path / "many.toml"
    path.write_text("".join(f'[clusters.c{number}]\nbootstrap.servers = "a:1"\n' for number in range(5_000)))
    path.chmod(0o600)
    command = [sys.executable, "-m", "ottla", "contexts", "list"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "OTTLA_CLUSTERS": str(path)}
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(30) == 0


def test_an_interrupt_is_130(monkeypatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ottla.cli.operations.contexts.read_clusters", interrupted)
    assert CliRunner().invoke(main, ["contexts", "list"]).exit_code == 130
