"""Public names of a package, and modules, that are imported when they are first used (PEP 562).

`import ottla` loads no Kafka client, a service that only consumes never loads what only producers need, and what plans
a Spark stream never loads what writes to a topic.
"""

from __future__ import annotations

import dis
import importlib
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of `package`. Called in its body, after the imports under
    `TYPE_CHECKING`: these are its public names.

    A name that was used once is an ordinary attribute from then on.
    """
    home_of = _typed_imports(sys._getframe(1).f_code)
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


def _typed_imports(body: CodeType) -> dict[str, str]:
    """Return name → module of the imports under `TYPE_CHECKING` in the body of a package.

    They are read from its bytecode: frozen applications have no source.
    """
    home_of: dict[str, str] = {}
    module = ""
    for instruction in dis.get_instructions(body):
        if instruction.opname == "IMPORT_NAME":
            module = instruction.argval
        elif instruction.opname == "IMPORT_FROM":
            home_of[instruction.argval] = module
        elif instruction.argval == "TYPE_CHECKING" and instruction.opname == "LOAD_NAME":
            home_of.clear()
    return home_of


class LazyModule(ModuleType):
    """A module that is imported when one of its names is first used: `steps =
    LazyModule("ottla.admin.operations.consumer_groups")`.

    Type checkers read an ordinary import of it under `TYPE_CHECKING`.
    """

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, found)
        return found
