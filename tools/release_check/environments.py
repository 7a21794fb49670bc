"""Fresh environments: the wheel is installed where nothing else is, and used as a user would use it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

WITHOUT_EXTRAS = ("ottla", "ottla.admin", "ottla.serdes", "ottla.telemetry", "broker_embedded.cluster")

IMPORT_ALL = """
import importlib, sys
count = 0
for module in sys.argv[1:]:
    loaded = importlib.import_module(module)
    assert "site-packages" in loaded.__file__, loaded.__file__
    for name in loaded.__all__:
        getattr(loaded, name)
        count += 1
print(count)
"""

INSTALLED = """
import importlib.metadata as metadata, json, os
found = []
for each in metadata.distributions():
    files = each.files or []
    size = sum(os.path.getsize(path) for path in map(each.locate_file, files) if os.path.isfile(path))
    licence = each.metadata.get("License-Expression") or ""
    if not licence:
        classifiers = each.metadata.get_all("Classifier") or []
        licence = "; ".join(c.rsplit(" :: ", 1)[1] for c in classifiers if c.startswith("License ::"))
    found.append([each.name, each.version, size, licence])
print(json.dumps(sorted(found, key=lambda row: row[0].lower())))
"""


class CheckFailed(Exception):
    """A step that a user would do did not work."""


def run(*command: str | Path, cwd: Path, timeout_s: float = 1800, **environment: str) -> str:
    """The output of a command, without anything of the repository on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OTTLA_", "VIRTUAL_"))}
    try:
        done = subprocess.run(
            list(map(str, command)),
            cwd=cwd,
            env={**kept, **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise CheckFailed(f"$ {' '.join(map(str, command))}\nit did not end within {timeout_s:g} s") from None
    if done.returncode:
        raise CheckFailed(f"$ {' '.join(map(str, command))}\n{done.stdout[-4000:]}")
    return done.stdout


@dataclass
class Environment:
    """A virtual environment of its own, outside of the tree."""

    folder: Path
    version: str
    facts: dict[str, object] = field(default_factory=dict)

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def python(self) -> Path:
        return self.bin / "python"

    @classmethod
    def make(cls, interpreter: str, folder: Path) -> Environment:
        shutil.rmtree(folder, ignore_errors=True)
        run(interpreter, "-m", "venv", folder, cwd=Path.cwd())
        version = run(folder / "bin" / "python", "-c", "import platform; print(platform.python_version())", cwd=folder)
        return cls(folder, version.strip())

    def install(self, *what: str) -> None:
        run(self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what, cwd=self.folder)

    def installed(self) -> list[tuple[str, str, int, str]]:
        """(name, version, bytes, licence) of each distribution."""
        printed = run(self.python, "-c", INSTALLED, cwd=self.folder)
        return [(name, version, size, licence) for name, version, size, licence in json.loads(printed)]

    def import_all(self, *modules: str) -> int:
        """Import every public name of the modules; returns how many there are."""
        return int(run(self.python, "-c", IMPORT_ALL, *modules, cwd=self.folder).split()[-1])

    def all_help(self) -> int:
        """`--help` of each command of `ottla`; returns how many there are."""
        listing = run(self.python, "-c", "from ottla.cli import COMMANDS; print(*COMMANDS)", cwd=self.folder).split()
        for name in listing:
            run(self.bin / "ottla", name, "--help", cwd=self.folder)
        return len(listing)


def interpreter_of(version: str) -> str | None:
    """A Python of this version: from the PATH, or of pyenv."""
    candidates = [shutil.which(f"python{version}") or ""]
    candidates += sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")), reverse=True)
    for candidate in filter(None, candidates):
        found = subprocess.run(
            [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        )
        if found.returncode == 0 and found.stdout.strip() == version:
            return candidate
    return None
