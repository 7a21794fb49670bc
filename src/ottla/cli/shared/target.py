"""`MODULE:NAME` on the command line: imports the object, or says which part was not found."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from ottla.errors import ConfigError


def import_target(target: str, *, wanted: str, example: str) -> tuple[ModuleType, str]:
    """Import the module of a target. Returns it, and the name in it. The current folder is searched, as by `python -m`.

    `wanted` and `example` say what a target looks like: `MODULE:APP`, `ottla run billing.service:app`.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigError(f"expected {wanted}, as in `{example}`, got {target!r}")
    if module_name.endswith(".py") or "/" in module_name:
        module = ".".join(part for part in module_name.removesuffix(".py").split("/") if part not in ("", "."))
        raise ConfigError(f"{target}: found the path of a file, wanted the name of its module: {module}:{attribute}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name), attribute
    except ModuleNotFoundError as error:
        is_ours = error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}."))
        if not is_ours:
            raise  # The module exists and fails to import something else: its own traceback tells more.
        raise ConfigError(f"{target}: there is no module {error.name!r} in {here} or on the path") from error


def names_of(module: ModuleType, kind: type) -> list[str]:
    """Return the names in a module that are of a kind: what could have been meant."""
    return [name for name, value in vars(module).items() if isinstance(value, kind)]
