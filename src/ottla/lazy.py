"""Public names of a package, and modules, that are imported when they are first used (PEP 562).

`import ottla` loads no Kafka client, a service that only consumes never loads what only producers need, and what plans
a Spark stream never loads what writes to a topic.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of `package`, whose public names are listed by the module they
    are in.

    A name that was used once is an ordinary attribute from then on. Type checkers read the package's imports under
    `TYPE_CHECKING`; the two lists are compared by a test.
    """
    home_of = {name: home for home, names in homes.items() for name in names}
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


class LazyModule(ModuleType):
    """A module that is imported when one of its names is first used: `steps =
    LazyModule("ottla.admin.operations.consumer_groups")`.

    Type checkers read an ordinary import of it under `TYPE_CHECKING`.
    """

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, found)
        return found
