"""Recurring tasks where ACLs say who may do what."""

from __future__ import annotations

import pytest

from ottla.cli import main as ottla
from ottla.errors import ConfigError
from ottla.schedule.tasks.task_records import Definition, tasks_topic
from ottla.sync.serve.task_registration import register_tasks
from ottla.testing import secure_kafka

pytestmark = pytest.mark.complete

USERS = {"admin": "admin-secret", "billing": "secret"}
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def test_an_app_declares_its_tasks_with_describe_and_write_once_the_topic_is_there() -> None:
    task = Definition(id="billing/report", version=(1,), topic="reports", cron="0 8 * * *")
    topic = tasks_topic("default")
    with secure_kafka("SASL_PLAINTEXT", mechanism="PLAIN", users=USERS, config=AUTHORIZED) as kafka:
        own = kafka.settings_of("billing", "secret")
        with pytest.raises(ConfigError, match="needs DESCRIBE and WRITE on it"):
            register_tasks(kafka.bootstrap_servers, "default", [task], settings=own)
        register_tasks(kafka.bootstrap_servers, "default", [], settings=kafka.settings)
        with pytest.raises(ConfigError, match="needs DESCRIBE and WRITE on it"):
            register_tasks(kafka.bootstrap_servers, "default", [task], settings=own)
        grant = ["acls", "create", "--allow-principal", "User:billing", "--producer", "--topic", topic, "--yes"]
        client = [f"--set={name}={value}" for name, value in kafka.settings.items()]
        ottla([*grant, "--bootstrap-servers", kafka.bootstrap_servers, *client], standalone_mode=False)
        register_tasks(kafka.bootstrap_servers, "default", [task], settings=own)
        assert [record.raw_key for record in kafka.consume_all(topic)] == [b"definition billing/report"]
