"""A queue whose user lacks permissions, on a cluster with an authorizer."""

from __future__ import annotations

import shlex

from click.testing import CliRunner

from ottla import App
from ottla.admin import Admin, TopicSpec
from ottla.admin.doctor import Evidence, declaration_of, examine
from ottla.cli import main as ottla
from ottla.testing import secure_kafka

USERS = {"admin": "admin-secret", "worker": "secret"}
PERMISSIONS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def test_what_is_missing_is_found_and_granted_by_the_fix() -> None:
    with secure_kafka("SASL_PLAINTEXT", mechanism="PLAIN", users=USERS, config=PERMISSIONS) as kafka:
        worker = kafka.settings_of("worker", "secret")
        app = App(
            "resize",
            bootstrap_servers=kafka.bootstrap_servers,
            settings=worker,
            producer_settings=worker,
            dead_letter_topic="images.dead",
        )

        @app.queue("images")
        def resize(value: bytes) -> None: ...

        as_admin = [f"--set={name}={value}" for name, value in kafka.settings.items()]
        with Admin(kafka.bootstrap_servers, settings=kafka.settings) as admin:
            admin.create_topics({"images": TopicSpec(partitions=1), "images.dead": TopicSpec(partitions=1)})

            def findings() -> dict[str, str]:
                report = examine(Evidence(facts=admin.facts(), app=declaration_of(app)), only=["APP02"])
                assert not report.not_checked
                return {finding.message: finding.fix for finding in report.findings}

            found = findings()
            assert {message.rpartition(" to ")[2] for message in found} == {
                "read group resize",
                "alter-configs group resize",
                "read topic images",
                "write topic images.dead",
            }
            assert "secret" not in str(found)
            for fix in found.values():
                command = [*shlex.split(fix)[1:], "--yes", "--bootstrap-servers", kafka.bootstrap_servers, *as_admin]
                granted = CliRunner().invoke(ottla, command)
                assert granted.exit_code == 0, granted.output
            assert findings() == {}
