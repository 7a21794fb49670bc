"""With which compiled modules a broker is started: without any it takes twice as long.

pip compiles what it installs, so a user's broker finds its modules compiled. A benchmark may run from a checkout, where
Python may not even be allowed to compile (PYTHONDONTWRITEBYTECODE): then the compiled modules are kept in a folder of
the run, and both starts are measured.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("broker_embedded", "ottla_wire")


class CompiledModules:
    """Environments for child processes. The first start with either of them compiles; `folder` is the caller's to
    remove.
    """

    def __init__(self, folder: Path) -> None:
        self._all = folder / "all"
        self._standard_library = folder / "standard-library"

    def as_installed(self) -> dict[str, str]:
        """Everything is compiled, as after `pip install`."""
        return {**_environment(), "PYTHONPYCACHEPREFIX": str(self._all)}

    def of_the_standard_library(self) -> dict[str, str]:
        """Ottla's own modules are compiled anew at each start, as in a checkout where Python may not write them. Called
        when a broker has been started `as_installed`.
        """
        if not self._standard_library.exists():
            own = {self._all / _place(package).relative_to("/") for package in PACKAGES}
            shutil.copytree(
                self._all,
                self._standard_library,
                ignore=lambda parent, names: [name for name in names if Path(parent) / name in own],
            )
        return {
            **_environment(),
            "PYTHONPYCACHEPREFIX": str(self._standard_library),
            "PYTHONDONTWRITEBYTECODE": "1",
        }


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _place(package: str) -> Path:
    found = find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent
