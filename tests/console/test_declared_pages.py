"""What `ottla apply` would change, over HTTP and among the findings of the doctor. Nothing is changed by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from console_kit import running_console

from ottla.admin import Admin
from ottla.cli import main
from ottla.config import Settings
from ottla.console.state import ConsoleOptions
from ottla.testing.registry import EmbeddedRegistry


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(
        '[topics.drifting]\npartitions = 2\nsettings.retention.ms = "1h"\n[topics.not-made]\n'
        '[schemas.drifting-value]\ncompatibility = "FULL"\n'
    )
    return path


@pytest.fixture
def drifting(admin: Admin) -> Iterator[str]:
    admin.create_topics({"drifting": None})
    yield "drifting"
    admin.delete_topics("drifting")


@pytest.mark.usefixtures("drifting")
def test_the_diff_is_that_of_the_command_and_changes_nothing(kafka: Settings, admin: Admin, file: Path) -> None:
    with (
        EmbeddedRegistry() as registry,
        running_console(kafka, ConsoleOptions(declared=(file,), registry=registry.url)) as console,
    ):
        assert console.get("session")["has_declared"]
        found = console.get("declared")
        assert [(each["kind"], each["subject"], each["old"], each["new"]) for each in found["items"]] == [
            ("topic", "not-made", None, "with the cluster's defaults"),
            ("partitions", "drifting", "1", "2"),
            ("topic setting", "drifting", None, "3600000"),
            ("compatibility level", "drifting-value", None, "FULL"),
        ]
        assert (found["total"], found["not_read"], found["files"]) == (4, [], [str(file)])
        findings = [each for each in console.get("doctor")["items"] if each["id"] == "DRF01"]
        assert {each["subject"] for each in findings} == {"not-made", "drifting", "drifting-value"}
        file.write_text("[topics.drifting]\n")
        assert console.get("declared", fresh="true")["items"] == [], "the file is read again"
    assert "not-made" not in {topic.name for topic in admin.list_topics()}
    assert sorted(each.name for each in file.parent.iterdir()) == ["cluster.toml"]


@pytest.mark.usefixtures("drifting")
def test_what_cannot_be_compared_is_said_beside_what_can(kafka: Settings, file: Path) -> None:
    choices = ConsoleOptions(declared=(file,), registry="http://127.0.0.1:1")
    with running_console(kafka, choices) as console:
        found = console.get("declared")
        assert len(found["items"]) == 3
        (reason,) = found["not_read"]
        assert "http://127.0.0.1:1" in reason
        (missing,) = [each for each in console.get("doctor")["not_checked"] if each["id"] == "DRF01"]
        assert missing["reason"] == reason
        file.write_text("[topics.drifting]\npartitions = 0\n")
        status, message = console.refused("declared", fresh="true")
        assert (status, "partitions: found 0, wanted" in message) == (400, True)
        doctor = console.get("doctor", fresh="true")
        assert [each["reason"] for each in doctor["not_checked"] if each["id"] == "DRF01"] == [message]
        assert doctor["items"], "the other findings are there"


def test_without_files_there_is_no_diff(kafka: Settings, file: Path) -> None:
    with running_console(kafka, ConsoleOptions(folder=file.parent)) as console:
        assert not console.get("session")["has_declared"]
        status, message = console.refused("declared")
        assert (status, "start it with --declared FILE" in message) == (400, True)
    file.write_text("[topics]\nx = 1\n")
    refused = CliRunner().invoke(main, ["console", "--declared", str(file)])
    assert (refused.exit_code, "topics.x: found 1, wanted a table" in refused.stderr) == (2, True), refused.output
