"""`ottla consume` and `produce` with a registry that wants a login: it is in the environment, and in no message."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from ottla.cli import main
from ottla.serdes import SchemaRegistry
from ottla.testing import Kafka
from ottla.testing.registry import EmbeddedRegistry

SECRET = "corr3ct-h0rse"
SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'


def test_records_are_written_and_read_with_a_login(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    def ottla(*arguments: str, input: bytes = b"") -> Result:
        return CliRunner().invoke(main, [*arguments, "-b", kafka.bootstrap_servers], input=input)

    topic = kafka.fresh_name("login")
    kafka.create_topic(topic)
    with EmbeddedRegistry(users={"ops": SECRET}) as running:
        SchemaRegistry(running.url, user="ops", password=SECRET).register(f"{topic}-value", SCHEMA)
        option = ("--registry", running.url)
        refused = ottla("produce", topic, "--as", "avro", *option, input=b'{"id": 1}\n')
        assert (refused.exit_code, "HTTP 401" in refused.stderr) == (2, True)
        monkeypatch.setenv("OTTLA_REGISTRY_USER", "ops")
        monkeypatch.setenv("OTTLA_REGISTRY_PASSWORD", SECRET)
        written = ottla("produce", topic, "--as", "avro", *option, input=b'{"id": 1}\n')
        assert written.exit_code == 0, written.output
        shown = ottla("consume", topic, *option)
        assert '{"id":1}' in shown.stdout.replace(" ", "")
        assert SECRET not in refused.output + written.output + shown.output
