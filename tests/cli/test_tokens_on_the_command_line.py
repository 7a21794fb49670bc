"""Commands, services and tools on a cluster that wants tokens, over TLS: one source of tokens, one fetch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from token_clients import until

from ottla import App, Consumer, Context, Json, Producer
from ottla.admin import Admin
from ottla.browse.record_input import InputRecord
from ottla.browse.writing import RecordWriter
from ottla.cli import main
from ottla.testing import SecureKafka, secure_kafka
from ottla.testing.oidc import OidcEndpoint
from ottla.testing.running import RunningApp as running
from ottla.tokens.shared import forget_sources
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import Cluster

pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka(mechanism="OAUTHBEARER") as running:
        running.create_topic("orders", partitions=2)
        running.produce("orders", [{"number": number} for number in range(5)])
        yield running


@pytest.fixture
def endpoint(kafka: SecureKafka) -> OidcEndpoint:
    assert kafka.endpoint is not None
    forget_sources()
    kafka.endpoint.asked = 0
    return kafka.endpoint


Run = Callable[..., Result]
SECRET = "sasl.oauthbearer.client.secret"


@pytest.fixture
def ottla(kafka: SecureKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command with its login by `--set`, and its secret in the environment."""
    monkeypatch.chdir(tmp_path)
    pairs = [f"{name}={value}" for name, value in kafka.settings.items() if name != SECRET]

    def run(*arguments: str, logs_in: bool = True, env: dict[str, str] | None = None) -> Result:
        given = [*arguments]
        if logs_in:
            given += ["-b", kafka.bootstrap_servers, *(part for pair in pairs for part in ("--set", pair))]
        variables = {"OTTLA_CLUSTERS": str(tmp_path / "none.toml")}
        variables["OTTLA_CLIENT_SASL_OAUTHBEARER_CLIENT_SECRET"] = "alice-secret"
        return CliRunner().invoke(main, given, env={**variables, **(env or {})})

    return run


COMMANDS = [
    ["topics", "list"],
    ["topics", "show", "orders"],
    ["groups", "list"],
    ["cluster", "show"],
    ["doctor"],
    ["consume", "orders", "--limit", "1"],
    ["plan", "rebalance"],
    ["quotas", "list"],
    ["cluster", "brokers"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_logs_in_with_one_token(ottla: Run, endpoint: OidcEndpoint, command: list[str]) -> None:
    result = ottla(*command)
    assert result.exit_code in (0, 1), result.output  # the doctor finds something, and says so by 1
    assert "orders" in result.stdout or command[0] != "topics"
    assert endpoint.asked == 1
    assert "alice-secret" not in result.output


def test_a_secret_on_the_command_line_is_not_needed_and_a_missing_one_is_named(ottla: Run) -> None:
    result = ottla("topics", "list", env={"OTTLA_CLIENT_SASL_OAUTHBEARER_CLIENT_SECRET": ""})
    assert result.exit_code == 2
    assert "sasl.oauthbearer.client.secret: found nothing" in result.stderr


def test_a_wrong_secret_is_an_error_with_a_reason(ottla: Run) -> None:
    forget_sources()
    result = ottla("topics", "list", env={"OTTLA_CLIENT_SASL_OAUTHBEARER_CLIENT_SECRET": "guess-1"})
    assert result.exit_code != 0
    assert "HTTP 401, invalid_client" in result.stderr
    assert "guess-1" not in result.output


def test_a_cluster_of_the_file_has_its_secret_in_the_environment(
    ottla: Run, kafka: SecureKafka, tmp_path: Path
) -> None:
    file = tmp_path / "clusters.toml"
    lines = {"bootstrap.servers": kafka.bootstrap_servers, **kafka.settings}
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items() if name != SECRET)
    file.write_text(f'[clusters.here]\n{text}{SECRET}_env = "KAFKA_SECRET"\n')
    file.chmod(0o600)
    env = {"OTTLA_CLUSTERS": str(file), "KAFKA_SECRET": "alice-secret"}
    env["OTTLA_CLIENT_SASL_OAUTHBEARER_CLIENT_SECRET"] = ""
    result = ottla("topics", "list", "--cluster", "here", logs_in=False, env=env)
    assert result.exit_code == 0, result.output
    assert "orders" in result.stdout


def test_a_cluster_of_the_file_may_not_hold_the_secret(ottla: Run, kafka: SecureKafka, tmp_path: Path) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text(f'[clusters.here]\nbootstrap.servers = "a:1"\n{SECRET} = "alice-secret"\n')
    file.chmod(0o600)
    result = ottla("topics", "list", "--cluster", "here", logs_in=False, env={"OTTLA_CLUSTERS": str(file)})
    assert result.exit_code == 2
    assert "a secret does not belong in this file" in result.stderr
    assert "alice-secret" not in result.output


def test_what_is_wrong_is_said_before_any_connection(ottla: Run) -> None:
    """At an address where nobody listens, and always in the same words."""
    said = set()
    for _ in range(3):
        result = CliRunner().invoke(
            main,
            [
                *("topics", "list", "-b", "127.0.0.1:1", "--set", "security.protocol=SASL_SSL"),
                *("--set", "sasl.mechanism=OAUTHBEARER", "--set", "sasl.oauthbearer.scope=a"),
            ],
        )
        assert result.exit_code == 2
        said.add(result.stderr)
    (only,) = said
    assert only.startswith("ottla: ConfigError: sasl.oauthbearer.method: found nothing, wanted one of oauth_cb")


def test_delayed_messages_are_delivered(kafka: SecureKafka, endpoint: OidcEndpoint) -> None:
    due, name = kafka.create_topic("due"), kafka.fresh_name("schedule")
    handled: list[bytes] = []
    app = App(name, bootstrap_servers=kafka.bootstrap_servers, settings=kafka.settings, scheduler=name)

    @app.handler(due)
    def handle(value: bytes, context: Context) -> None:
        handled.append(value)
        app.stop()

    with (
        running(app, kafka.bootstrap_servers),
        Producer(kafka.bootstrap_servers, settings=kafka.settings, schedule=name) as producer,
    ):
        producer.send(due, b"later", deliver_after=0.2).result(30)
        until(lambda: handled == [b"later"], timeout_s=60)
    assert endpoint.asked == 1


def test_headers_that_librdkafka_cannot_show_are_read_again(kafka: SecureKafka, endpoint: OidcEndpoint) -> None:
    """By the wire client beside the consumer, with the consumer's token."""
    topic = kafka.create_topic("headers")
    with Cluster(connection_settings({"bootstrap.servers": kafka.bootstrap_servers, **kafka.settings})) as wire:
        writer = RecordWriter(wire, topic, acknowledged=lambda *_: None)
        writer.add(InputRecord(0, None, b"x", (("caf\udce9", b"1"),), None, None))
        writer.flush()
    with Consumer(topic, group=topic, bootstrap_servers=kafka.bootstrap_servers, settings=kafka.settings) as consumer:
        record = next(iter(consumer))
    assert (record.value, record.headers) == (b"x", [(r"caf\xe9", b"1")])
    assert endpoint.asked == 1


def test_fifty_clients_of_one_process_cause_one_fetch(kafka: SecureKafka, endpoint: OidcEndpoint) -> None:
    admins = [Admin(kafka.bootstrap_servers, settings={**kafka.settings, "client.id": f"c-{n}"}) for n in range(50)]
    for admin in admins:
        admin.list_topics()
        admin.close()
    assert endpoint.asked == 1


def test_a_service_and_its_tools_have_one_source(kafka: SecureKafka, endpoint: OidcEndpoint) -> None:
    handled: list[Any] = []
    app = App(kafka.fresh_name("service"), bootstrap_servers=kafka.bootstrap_servers, settings=kafka.settings)

    @app.handler("orders", value=Json())
    def handle(value: Any, context: Context) -> None:
        handled.append(value)
        if len(handled) == 5:
            app.stop()

    app.run()
    assert len(handled) == 5
    assert endpoint.asked == 1
