"""Commands run in a test, and what they print."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema
from click.testing import Result

Run = Callable[..., Result]


def rows(result: Result) -> list[list[str]]:
    """Plain output, after an exit code of 0."""
    assert result.exit_code == 0, result.output
    return [line.split("\t") for line in result.stdout.splitlines()]


def document(result: Result, schema: str) -> Any:
    """JSON output of a schema, whatever the exit code. It is what the schema's file says."""
    found = json.loads(result.stdout)
    assert found["schema"] == schema, result.output
    follows_its_schema(found)
    return found


def follows_its_schema(found: Any) -> None:
    """A document, or a record, is what the file of its schema says."""
    problems = list(validator(found["schema"]).iter_errors(found))
    assert not problems, "\n".join(f"{found['schema']}: {each.json_path}: {each.message}" for each in problems[:5])


@cache
def validator(schema: str) -> Any:
    """Of `ottla.topics.list/1`, say."""
    name = schema.removeprefix("ottla.").replace("/", "-")
    text = files("ottla.cli").joinpath("schemas", f"{name}.json").read_text("utf-8")
    jsonschema.Draft202012Validator.check_schema(json.loads(text))
    return jsonschema.Draft202012Validator(json.loads(text))
