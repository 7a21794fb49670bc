"""The pages that answer a question run: commands are followed, Python is executed on the embedded broker."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from follow_page import blocks_of, follow

from ottla.cli import main

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
ALERTS = [HOW_TO.parent / "observability" / name for name in ("ottla-alerts.yml", "ottla-cluster-alerts.yml")]


@pytest.mark.representative("install.md-1", "configuration.md-4")
@pytest.mark.parametrize(
    ("page", "blocks"),
    [
        ("install.md", 1),
        ("configuration.md", 4),
        ("local-development.md", 2),
        ("larger-service.md", 7),
        ("watch-a-cluster.md", 5),
    ],
)
def test_a_page_of_commands_does_what_it_says(page: str, blocks: int, tmp_path: Path) -> None:
    assert follow(HOW_TO / page, tmp_path, Path(sys.executable).parent) >= blocks


@pytest.mark.complete
def test_the_page_on_lag_does_what_it_says(tmp_path: Path) -> None:
    assert follow(HOW_TO / "lag-does-not-fall.md", tmp_path, Path(sys.executable).parent) >= 8


class TestRunbooks:
    def rules(self) -> list[dict[str, Any]]:
        return [
            rule
            for file in ALERTS
            for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
            for rule in group["rules"]
        ]

    def test_every_alert_has_a_section_and_every_section_an_alert(self) -> None:
        sections = re.findall(r"^## (.+)$", (HOW_TO / "runbooks.md").read_text(encoding="utf-8"), re.MULTILINE)
        assert sections == [rule["alert"] for rule in self.rules()]

    def test_every_alert_names_its_section(self) -> None:
        for rule in self.rules():
            assert rule["annotations"]["runbook"] == f"how-to/runbooks.md#{rule['alert'].lower()}"


class TestTheComposeFile:
    """Containers do not run where the tests run: what can be checked is its syntax and what must fit together."""

    def services(self) -> dict[str, Any]:
        page = (HOW_TO / "local-development.md").read_text(encoding="utf-8")
        (text,) = re.findall(r'```yaml title="compose.yaml"\n(.*?)```', page, re.DOTALL)
        found = yaml.safe_load(text)
        assert set(found) == {"services"}
        services: dict[str, Any] = found["services"]
        return services

    def test_services_have_known_keys_and_depend_on_each_other(self) -> None:
        known = {"image", "build", "ports", "environment", "healthcheck", "depends_on", "command", "stop_grace_period"}
        services = self.services()
        for name, service in services.items():
            assert set(service) <= known, name
            assert set(service.get("depends_on", {})) <= set(services)
            assert all(isinstance(value, str) for value in service["environment"].values()), name

    def test_the_address_of_each_client_is_a_listener_that_the_broker_advertises(self) -> None:
        services = self.services()
        kafka = services["kafka"]["environment"]
        listeners = [each.partition("://")[0] for each in kafka["KAFKA_LISTENERS"].split(",")]
        protocols = dict(each.split(":") for each in kafka["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
        assert sorted(listeners) == sorted(protocols)
        advertised = [each.partition("://")[2] for each in kafka["KAFKA_ADVERTISED_LISTENERS"].split(",")]
        assert services["billing"]["environment"]["OTTLA_BOOTSTRAP_SERVERS"] in advertised
        registry = services["registry"]["environment"]
        assert registry["SCHEMA_REGISTRY_KAFKASTORE_BOOTSTRAP_SERVERS"] in advertised
        assert "localhost:9092" in advertised


@pytest.mark.parametrize(
    "page",
    ["runbooks.md", "lag-does-not-fall.md", "troubleshooting.md", "faq.md", "tuning.md", "local-development.md"],
)
def test_every_command_and_option_that_a_page_names_exists(page: str) -> None:
    for line in re.findall(r"(?:`|\$ )(ottla [a-z][^`\n|]*)", (HOW_TO / page).read_text(encoding="utf-8")):
        words = shlex.split(line)[1:]
        context, command = click.Context(main), main
        while words and isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None, line
            command = found
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= options, line


def test_pages_without_code_have_none() -> None:
    """What is not executed above, or by test_sdk_pages.py, must not hold code."""
    for page in ("runbooks.md", "troubleshooting.md", "faq.md"):
        assert list(blocks_of(HOW_TO / page)) == [], page
