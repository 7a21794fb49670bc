"""Modules that a test wrote to a folder of its own and imported, in this process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType


def forget_modules(below: str, *, newest: str, path: Sequence[str]) -> None:
    """Forget the modules of files below a folder that were imported behind the module `newest`.

    What is below the folder and was not in `path` leaves `sys.path` too. What a fixture of a file, or of all files,
    imported earlier stays.
    """
    for name in reversed(list(sys.modules)):
        if name == newest:
            break
        if any(place.startswith(below) for place in _places(sys.modules.get(name))):
            del sys.modules[name]
    sys.path[:] = [each for each in sys.path if each in path or not each.startswith(below)]


def _places(module: ModuleType | None) -> list[str]:
    """The file of a module; the folders of a package that has no file."""
    file = getattr(module, "__file__", None)
    return [file] if file else list(getattr(module, "__path__", ()))
