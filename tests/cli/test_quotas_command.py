"""`ottla quotas` on the embedded broker: what a person sets, sees and removes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from broker_embedded.cluster import EmbeddedCluster
from ottla.cli import main
from ottla.testing import secure_kafka
from ottla.testing.waiting import wait_until

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as running:
        yield running


@pytest.fixture
def run(cluster: EmbeddedCluster) -> Run:
    def run(*arguments: str, servers: str = cluster.bootstrap_servers) -> Result:
        return CliRunner().invoke(main, ["quotas", *arguments, "--bootstrap-servers", servers])

    return run


def lines(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.output.splitlines()]


def test_what_is_set_is_listed_until_it_is_removed(run: Run, cluster: EmbeddedCluster) -> None:
    assert lines(run("list")) == [["no", "quotas"]]
    alice = ("--user", "alice", "--client-id", "app")
    told = run("set", "producer_byte_rate=1048576", "request_percentage=12.5", *alice, "--yes")
    assert told.stderr == "user alice, client-id app: changed\n"
    assert [line.split("\t") for line in told.stdout.splitlines()] == [
        ["producer_byte_rate", "", "1048576"],
        ["request_percentage", "", "12.5"],
    ]
    assert run("set", "consumer_byte_rate=5", "--user-defaults", "--yes").stderr == "user <default>: changed\n"
    for address in cluster.bootstrap_servers.split(","):
        wait_for_quotas(cluster, 2)
        header, *rows = lines(run("list", "-H", servers=address))
        assert header == ["user", "client-id", "ip", "quota", "value"]
        assert rows == [
            ["<default>", "consumer_byte_rate", "5"],
            ["alice", "app", "producer_byte_rate", "1048576"],
            ["alice", "app", "request_percentage", "12.5"],
        ]
    assert len(lines(run("list", "--user", "alice"))) == 2
    assert lines(run("list", "--client-defaults")) == [["no", "quotas"]]
    assert run("remove", "producer_byte_rate", "request_percentage", *alice, "--yes").exit_code == 0
    assert run("remove", "consumer_byte_rate", "--user-defaults", "--yes").exit_code == 0
    wait_for_quotas(cluster, 0)
    assert lines(run("list")) == [["no", "quotas"]]


def wait_for_quotas(cluster: EmbeddedCluster, entities: int) -> None:
    nodes = cluster._cluster.nodes.values()
    wait_until(lambda: all(len(node.broker.metadata.image.client_quotas) == entities for node in nodes), timeout_s=60)


def test_a_change_is_shown_old_and_new_and_needs_a_yes(run: Run, cluster: EmbeddedCluster) -> None:
    app = ("--client-id", "app")
    assert run("set", "producer_byte_rate=5", *app, "--yes").exit_code == 0
    wait_for_quotas(cluster, 1)
    refused = run("set", "producer_byte_rate=7", "consumer_byte_rate=9", *app)
    assert refused.exit_code == 2
    assert "--yes agrees" in refused.stderr
    assert json.loads(run("set", "producer_byte_rate=7", *app, "--dry-run", "--format", "json").stdout) == {
        "schema": "ottla.quotas.set/1",
        "items": [{"quota": "producer_byte_rate", "old": 5, "new": 7}],
    }
    assert run("set", "producer_byte_rate=5", *app).stderr == "nothing to change\n"
    assert run("remove", "consumer_byte_rate", *app).stderr == "nothing to change\n"
    assert lines(run("list")) == [["app", "producer_byte_rate", "5"]]
    removed = run("remove", "producer_byte_rate", *app, "--yes", "--format", "json").stdout
    assert json.loads(removed)["items"] == [{"quota": "producer_byte_rate", "old": 5, "new": None}]
    wait_for_quotas(cluster, 0)


def test_a_dry_run_asks_and_changes_nothing(run: Run) -> None:
    shown = run("set", "producer_byte_rate=5", "--user", "a", "--dry-run")
    assert (shown.exit_code, shown.stderr) == (0, "dry run: nothing was changed\n")
    assert lines(run("list")) == [["no", "quotas"]]
    refused = run("set", "producer_byte_rate=0.5", "--user", "a", "--dry-run")
    assert refused.exit_code == 2
    assert "INVALID_REQUEST: producer_byte_rate cannot be a fractional value." in refused.output


def test_a_quota_of_bytes_takes_a_size(run: Run) -> None:
    shown = run("set", "producer_byte_rate=1MB", "consumer_byte_rate=1.5MiB", "--user", "a", "--dry-run")
    assert [line.split()[-1] for line in shown.stdout.splitlines()] == ["1000000", "1572864"]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1parsec", "1e999", ""])
def test_a_quota_is_a_number(run: Run, value: str) -> None:
    refused = run("set", f"producer_byte_rate={value}", "--user", "a", "--yes")
    assert refused.exit_code == 2
    assert f"producer_byte_rate: found {value!r}, wanted a number, or a size as 1MB" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["set", "producer_byte_rate=5"], "found no entity, wanted --user"),
        (["remove", "producer_byte_rate"], "found no entity, wanted --user"),
        (["set", "producer_byte_rate", "--user", "a"], "QUOTA: found 'producer_byte_rate', wanted QUOTA=VALUE"),
        (["set", "producer_byte_rate=much", "--user", "a"], "wanted a number"),
        (["set", "speed=5", "--user", "a"], "Invalid configuration key speed"),
        (["set", "producer_byte_rate=5", "--user", "a", "--user-defaults"], "wanted one of them"),
        (["list", "--ip", "127.0.0.1", "--user", "a"], "IP filter component should not be used with user"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(run: Run, arguments: list[str], told: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in result.output
    assert len(result.output.splitlines()) == 1


def test_nobody_there_is_one_line(run: Run) -> None:
    result = run("list", servers="127.0.0.1:1")
    assert result.exit_code == 2
    assert "no Kafka broker answered at 127.0.0.1:1" in result.output


def test_a_broker_that_answers_is_enough(run: Run, cluster: EmbeddedCluster) -> None:
    assert lines(run("list", servers=f"127.0.0.1:1,{cluster.bootstrap_servers}")) == [["no", "quotas"]]


def test_a_password_is_a_setting(run: Run) -> None:
    with secure_kafka("SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", users={"alice": "secret"}) as kafka:
        login = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256", "sasl.username=alice"]
        options = [part for each in (*login, "sasl.password=secret") for part in ("--set", each)]
        assert lines(run("list", *options, servers=kafka.bootstrap_servers)) == [["no", "quotas"]]
