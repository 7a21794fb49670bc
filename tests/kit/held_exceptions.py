"""Import every module of the product and print how many there are, and the names that hold exception objects.

A process of its own: importing all has effects that other tests should not see.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator

PACKAGES = ("ottla", "ottla_wire", "broker_embedded")
PROGRAMS = ("__main__", "ottla.cli.demo.service")
"""What does something when it is imported."""


def main() -> None:
    count, found = 0, []
    for name in _names():
        try:
            module = importlib.import_module(name)
        except ImportError:  # of an extra that is not installed
            continue
        count += 1
        classes = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == name]
        for place in (module, *classes):
            for attribute, value in list(vars(place).items()):
                if not attribute.startswith("__") and any(_exceptions_in(value)):
                    found.append(f"{name}.{attribute}")
    sys.stdout.write("\n".join([str(count), *found]))


def _names() -> Iterator[str]:
    for package in PACKAGES:
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not found.name.endswith(PROGRAMS):
                yield found.name


def _exceptions_in(value: object, depth: int = 0) -> Iterator[BaseException]:
    if isinstance(value, BaseException):
        yield value
    elif depth < 3 and isinstance(value, dict):
        for each in value.values():
            yield from _exceptions_in(each, depth + 1)
    elif depth < 3 and isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _exceptions_in(each, depth + 1)


if __name__ == "__main__":
    main()
