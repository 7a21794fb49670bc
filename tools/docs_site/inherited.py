"""An extension of griffe: a member without a docstring has that of its base, as `inspect.getdoc` returns it."""

from __future__ import annotations

from typing import Any

import griffe


class InheritedDocstrings(griffe.Extension):
    """Copies the docstring of the next base that has one to each method and attribute without one, also `__init__`."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        _complete(pkg)


def _complete(place: griffe.Module | griffe.Class) -> None:
    for member in place.members.values():
        if isinstance(member, griffe.Module | griffe.Class):
            _complete(member)
        elif isinstance(member, griffe.Function | griffe.Attribute) and isinstance(place, griffe.Class):
            member.docstring = member.docstring or _inherited(member.name, place)


def _inherited(name: str, owner: griffe.Class) -> griffe.Docstring | None:
    bases = owner.mro() if owner.bases else []
    return next((base.members[name].docstring for base in bases if name in base.members and _has(base, name)), None)


def _has(base: griffe.Class, name: str) -> bool:
    return base.members[name].docstring is not None
