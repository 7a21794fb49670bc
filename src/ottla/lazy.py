"""Public names of a package, and modules, that are imported when they are first used (PEP 562).

`import ottla` loads no Kafka client, a service that only consumes never loads what only producers need, and what plans
a Spark stream never loads what writes to a topic.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of `package`. Called in its body, after the imports under
    `TYPE_CHECKING`: these are its public names.

    A name that was used once is an ordinary attribute from then on.
    """
    home_of = _typed_imports(package, sys._getframe(1).f_code)
    public = sorted(home_of)

    def get(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *public})

    return get, names, public


def _typed_imports(package: str, body: CodeType) -> dict[str, str]:
    """Return name → module of the imports under `TYPE_CHECKING` in the body of a package.

    The body runs once more, as far as `lazy_names`, in a namespace where `TYPE_CHECKING` is true and an import is noted
    instead of done. So no second list of the names is needed, and no source, which frozen applications do not have.
    """
    imports = _NotedImports()
    try:
        exec(body, {"__name__": package, "__builtins__": {"__import__": imports.note}})
    except _BodyIsRead:
        return imports.home_of
    raise ImportError(f"{package} has to import lazy_names by this name")


class _NotedImports:
    """Stands for every module and every name that the body of a package imports while they are noted."""

    def __init__(self) -> None:
        self.home_of: dict[str, str] = {}

    def note(
        self, module: str, _globals: object, _locals: object, names: Sequence[str] | None, _level: int
    ) -> _NotedImports:
        self.home_of.update(dict.fromkeys(names or (), module))
        return self

    def __getattr__(self, _: str) -> _NotedImports:
        return self

    def __bool__(self) -> bool:
        """Stand for `TYPE_CHECKING`, the one name that is asked: what was imported before it is no public name."""
        self.home_of.clear()
        return True

    def lazy_names(self, _: str) -> None:
        raise _BodyIsRead


class _BodyIsRead(Exception):
    pass


class LazyModule(ModuleType):
    """A module that is imported when one of its names is first used: `steps =
    LazyModule("ottla.admin.operations.consumer_groups")`.

    Type checkers read an ordinary import of it under `TYPE_CHECKING`.
    """

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, found)
        return found
