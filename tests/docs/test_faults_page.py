"""The page on faults runs, top to bottom, and names every command and path that there is."""

from __future__ import annotations

import re
from pathlib import Path

from broker_embedded.cluster.control.routes import BROKER_ACTIONS, DISK_ACTIONS, LINK_ACTIONS
from ottla.cli.embedded.broker import broker

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "faults.md"


def blocks(language: str) -> str:
    """The page's code of one language; line numbers stay the page's."""
    lines, is_code = [], False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            is_code = line == f"```{language}"
            lines.append("")
        else:
            lines.append(line if is_code else "")
    return "\n".join(lines)


def test_the_faults_page_is_true(capsys) -> None:
    exec(compile(blocks("python"), str(PAGE), "exec", dont_inherit=True), {"__name__": "faults_page"})
    assert "is killed" in capsys.readouterr().out


def test_the_commands_on_the_faults_page_exist() -> None:
    shown = re.findall(r"^ottla broker (\w+)", blocks("bash"), re.MULTILINE)
    assert len(shown) >= 6
    assert set(shown) <= set(broker.commands)


def test_the_paths_on_the_faults_page_are_those_that_are_served() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for kind, actions in (("brokers/N", BROKER_ACTIONS), ("links", LINK_ACTIONS), ("disks", DISK_ACTIONS)):
        found = re.search(rf"POST /{kind}/\{{([\w,-]+)\}}", text)
        assert found is not None
        assert found[1].split(",") == list(actions)
