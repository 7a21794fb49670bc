"""An extension of griffe: `name = _awaited(Admin.name)` in a class is shown as the method that it is, to be awaited."""

from __future__ import annotations

from typing import Any

import griffe


class AwaitedMethods(griffe.Extension):
    """Makes functions of such attributes, with the parameters and the docstring of the method in the parentheses."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        _complete(pkg, pkg)


def _complete(place: griffe.Module | griffe.Class, pkg: griffe.Module) -> None:
    for name, member in list(place.members.items()):
        if isinstance(member, griffe.Module | griffe.Class):
            _complete(member, pkg)
        elif isinstance(member, griffe.Attribute) and (path := _awaited_path(member.value)) is not None:
            method = pkg.modules_collection[path]
            function = griffe.Function(
                name,
                parameters=method.parameters,
                returns=method.returns,
                docstring=method.docstring,
                lineno=member.lineno,
                endlineno=member.endlineno,
            )
            function.labels.add("async")
            place.set_member(name, function)


def _awaited_path(value: Any) -> str | None:
    """Return the path of the method in `_awaited(method)`; None for anything else."""
    is_awaited = isinstance(value, griffe.ExprCall) and str(value.function) == "_awaited"
    return value.arguments[0].canonical_path if is_awaited else None
