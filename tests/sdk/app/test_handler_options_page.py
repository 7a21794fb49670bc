"""The page of options that go together is what the code says."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path
from typing import Any

import pytest

from ottla import App

TOOL = Path(__file__).parents[3] / "tools" / "handler_options.py"
GO_WITH_ALL = {"topics", "value", "key", "group", "name"}


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


def test_the_page_is_as_the_code_is(tool: dict[str, Any]) -> None:
    assert tool["PAGE"].read_text() == tool["render"](), "run: python tools/handler_options.py"


def test_every_option_of_a_handler_is_on_the_page(tool: dict[str, Any]) -> None:
    tried = {name for options in tool["OPTIONS"].values() for name in options}

    assert set(inspect.signature(App.handler).parameters) - {"self"} - GO_WITH_ALL <= tried


@pytest.mark.parametrize("name", ["to=", "max_batch=", "linger_ms=", "on_expired=Dead(...)", "reserve="])
def test_what_an_option_needs_it_cannot_be_without(tool: dict[str, Any], name: str) -> None:
    assert tool["declared"]([name]) is not None
    assert all(tool["declared"]([name, other]) is None for other in tool["NEEDS"][name])


def test_every_other_option_can_stand_alone(tool: dict[str, Any]) -> None:
    assert [name for name in tool["OPTIONS"] if name not in tool["NEEDS"] and tool["declared"]([name])] == []
