"""Commands run in a test, and what they print."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from click.testing import Result

Run = Callable[..., Result]


def rows(result: Result) -> list[list[str]]:
    """Plain output, after an exit code of 0."""
    assert result.exit_code == 0, result.output
    return [line.split("\t") for line in result.stdout.splitlines()]


def document(result: Result, schema: str) -> Any:
    """JSON output of a schema, whatever the exit code."""
    found = json.loads(result.stdout)
    assert found["schema"] == schema, result.output
    return found
