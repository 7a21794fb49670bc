"""What Ottla uses of aiokafka beyond its public names: all in one module, and all there."""

from __future__ import annotations

import ast
from importlib.metadata import version
from pathlib import Path

import pytest

import ottla
from ottla.aio import aiokafka_internals
from ottla.aio.aiokafka_internals import PRIVATE_NAMES, TRIED, missing_names

SHELL = Path(ottla.__file__).parent / "aio"
USED = {name for names in PRIVATE_NAMES.values() for name in names}
OWN = {"_client"}
"""Ottla's producers have an attribute of this name too."""


def test_the_installed_aiokafka_has_every_name() -> None:
    assert missing_names() == [], f"aiokafka {version('aiokafka')} has not what {', '.join(TRIED)} had"


def test_a_name_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {"aiokafka.client:AIOKafkaClient": ("_get_conn", "_get_link"), "aiokafka.client:Gone": ("_name",)}
    monkeypatch.setattr(aiokafka_internals, "PRIVATE_NAMES", gone)

    assert missing_names() == ["aiokafka.client:AIOKafkaClient._get_link", "aiokafka.client:Gone"]


def private_names(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            found |= set() if getattr(node.value, "id", "") == "self" else {node.attr}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "setattr", "hasattr"):
            found |= {str(each.value) for each in node.args[1:2] if isinstance(each, ast.Constant)}
    return found


def test_every_name_is_used_in_its_module_and_in_no_other() -> None:
    internals = SHELL / "aiokafka_internals.py"
    assert private_names(internals) >= USED
    elsewhere = {
        str(path.relative_to(SHELL)): found
        for path in SHELL.rglob("*.py")
        if path != internals and (found := private_names(path) & (USED - OWN))
    }
    assert elsewhere == {}
