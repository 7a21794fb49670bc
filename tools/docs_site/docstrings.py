"""What the API reference lacks: a public name without meaning, a number without its unit, an error that is not said.

Read from the sources, as the reference itself is. A field or parameter is described by its own docstring, or where the
docstring of its class or function names it in backticks.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from typing import Any, cast

import griffe

from docs_site.api_objects import api_objects, load, public_paths
from docs_site.project import ROOT

_NUMBER = re.compile(r"\b(int|float|Int64)\b")
_MEASURES = re.compile(
    r"(^|_)(timeout|interval|delay|wait|duration|period|lease|window|linger|backoff|age|elapsed|uptime|timestamp|since|until"
    r"|size|memory|rate|latency)(_|$)"
)
_UNIT_IN_NAME = re.compile(r"_(s|ms|us|ns|bytes|records|rows|count|seconds|per_s|mb|ratio)$|^(seconds|bytes)$|^at_ms$")
_UNIT_IN_WORDS = re.compile(
    r"\b(seconds?|milliseconds?|ms|minutes?|hours?|days?|bytes?|MiB|MB|records?|rows?|per second|fraction|share)\b"
    r"|\d ?(s|ms)\b"
)
# What a reader who knows Kafka knows.
KAFKAS_WORDS = frozenset(
    """topic partition topic_partition offset key value headers host port rack client_id group_id cluster_id topic_id
    member_id leader_epoch producer_id producer_epoch transactional_id bootstrap_servers""".split()  # noqa: SIM905
)


def problems_of(each: griffe.Object) -> list[str]:
    """One line for each thing that the docstring of `each` should say and does not."""
    where = f"{_place(each)} {each.path}"
    found = []
    if each.name != "__init__" and not _is_described(each):
        found.append(f"{where}: no docstring says what it means")
    if isinstance(each, griffe.Function):
        words = _words(each)
        if isinstance(each.parent, griffe.Class):
            words += _words(each.parent) + _described_elsewhere(each.name, each.parent)
        for parameter in each.parameters:
            if _lacks_unit(parameter.name, str(parameter.annotation or ""), _about(parameter.name, words)):
                found.append(f"{where}: no unit of `{parameter.name}`")
        found += [f"{where}: does not say that it raises {name}" for name in sorted(_raised(each)) if name not in words]
    elif isinstance(each, griffe.Attribute) and _lacks_unit(
        each.name, str(each.annotation or ""), _words(each) + _about(each.name, _words(each.parent))
    ):
        found.append(f"{where}: no unit")
    return found


def _words(each: griffe.Object | griffe.Alias | None) -> str:
    return each.docstring.value if each is not None and each.docstring is not None else ""


def _is_described(each: griffe.Object) -> bool:
    if _words(each).strip():
        return True
    owner = each.parent
    if not isinstance(owner, griffe.Class):
        return False
    if _described_elsewhere(each.name, owner):
        return True
    if not isinstance(each, griffe.Attribute):
        return False
    is_own_affair = _is_set_by_init(each, owner) and not _is_error(owner)
    return (
        is_own_affair
        or each.name in KAFKAS_WORDS
        or re.search(rf"`{each.name}\b", _words(owner)) is not None
        or _is_setting(each)
    )


def _described_elsewhere(name: str, owner: griffe.Class) -> str:
    """The words that the member has in the public class that the docstring of `owner` names."""
    for other in re.findall(r"`(\w+)`", _words(owner)):
        path = public_paths().get(other)
        if path is not None and path != owner.path and name in load(path).members:
            return _words(load(path).members[name])
    return ""


def _is_set_by_init(each: griffe.Attribute, owner: griffe.Class) -> bool:
    """Such an attribute has no entry in the reference unless it has words, and then is public."""
    init = owner.members.get("__init__")
    return init is not None and (init.lineno or 0) <= (each.lineno or 0) <= (init.endlineno or 0)


def _is_error(owner: griffe.Class) -> bool:
    return any(base.name == "OttlaError" for base in owner.mro())


def _is_setting(each: griffe.Attribute) -> bool:
    """A field that has the name of a Kafka setting, which its module reads: the settings reference describes it."""
    return "_" in each.name and f'"{each.name.replace("_", ".")}"' in cast(Any, each.filepath).read_text(
        encoding="utf-8"
    )


def _lacks_unit(name: str, annotation: str, words: str) -> bool:
    is_measure = bool(_NUMBER.search(annotation)) and bool(_MEASURES.search(name))
    return is_measure and not _UNIT_IN_NAME.search(name) and not _UNIT_IN_WORDS.search(words)


def _about(name: str, words: str) -> str:
    """The sentences that name it in backticks, and those that speak of all: "Times are milliseconds"."""
    sentences = re.split(r"(?<=[.:;])\s", words)
    return " ".join(each for each in sentences if re.search(rf"`{name}\b|\bTimes are\b|\beverywhere\b", each))


def _raised(function: griffe.Function) -> set[str]:
    """Errors that the body itself raises by name, which a caller may want to catch."""
    text = "\n".join(function.lines)
    tree = ast.parse(textwrap.dedent(text))
    attempts = [each for each in ast.walk(tree) if isinstance(each, ast.Try) and each.handlers]
    caught = {id(node) for each in attempts for node in _walk(each)}
    names = set()
    for node in ast.walk(tree):
        is_new = isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)
        if is_new and id(node) not in caught:
            names.add(node.exc.func.id)  # type: ignore[union-attr, attr-defined]
    return {name for name in names if name[0].isupper() and name not in _BUGS}


def _walk(attempt: ast.Try) -> Iterator[ast.AST]:
    """What is in the body of a `try`: its handlers decide what becomes of an error."""
    for statement in attempt.body:
        yield from ast.walk(statement)


_BUGS = {"AssertionError", "NotImplementedError", "StopIteration", "StopAsyncIteration", "AttributeError"}


def _place(each: griffe.Object) -> str:
    path: Any = each.filepath
    return f"{path.relative_to(ROOT).as_posix()}:{each.lineno}"


def problems() -> list[str]:
    return sorted({line for each in api_objects() for line in problems_of(each)})
