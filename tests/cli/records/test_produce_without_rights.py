"""Who may not write is told which right on which topic is missing, and how it is granted; in columns likewise."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from acl_client import READ, SETTINGS, TOPIC, USERS, WRITE, Grant, UserClient
from click.testing import CliRunner

from ottla import ConfigError, columnar
from ottla.cli import main
from ottla.errors import DeliveryError
from ottla.testing import SecureKafka, secure_kafka

GRANT = "`ottla acls create --allow-principal User:bob --producer --topic orders`"


@pytest.fixture
def secured() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_PLAINTEXT", mechanism="PLAIN", users=USERS, config=SETTINGS) as running:
        running.create_topic("orders")
        running.create_topic("others")
        yield running


@pytest.mark.parametrize("grants", [[], [Grant(WRITE, TOPIC, "others")]], ids=["no topic at all", "another topic"])
def test_the_error_names_the_topic_the_right_and_the_command(secured: SecureKafka, grants: list[Grant]) -> None:
    admin = UserClient(secured.bootstrap_servers, "admin")
    admin.grant(Grant(READ, TOPIC, "orders"), *grants)
    admin.close()
    settings = secured.settings_of("bob", USERS["bob"])
    chosen = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    command = ["produce", "orders", "--bootstrap-servers", secured.bootstrap_servers, *chosen]
    done = CliRunner().invoke(main, command, input="a\nb\n")
    assert done.exit_code != 0
    assert "WRITE" in done.output
    assert "topic orders" in done.output
    assert GRANT in done.output
    with pytest.raises((ConfigError, DeliveryError)) as caught:
        columnar.write(
            "orders",
            pa.table({"value": ["v"]}),
            bootstrap_servers=secured.bootstrap_servers,
            settings=dict(settings),
        )
    assert GRANT in str(caught.value if isinstance(caught.value, ConfigError) else caught.value.__cause__)
