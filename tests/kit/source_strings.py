"""What string a call in the source gives to a function, for tests that compare source with tables."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def first_arguments(file: Path, functions: set[str]) -> Iterator[tuple[int, set[str]]]:
    """(line, the strings that the first argument may be) of each call of these functions; an empty set: not constant.

    A name counts as the strings that are assigned to it in the file; a conditional expression as both of its sides.
    """
    tree = ast.parse(file.read_text())
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            assigned.setdefault(node.target.id, []).append(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and _name_of(node.func) in functions:
            yield node.lineno, _strings(node.args[0], assigned)


def _name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _strings(value: ast.expr, assigned: dict[str, list[ast.expr]]) -> set[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return {value.value}
    if isinstance(value, ast.IfExp):
        return _strings(value.body, {}) | _strings(value.orelse, {})
    if isinstance(value, ast.Name):
        return {text for each in assigned.get(value.id, ()) for text in _strings(each, {})}
    return set()
