"""Wheel and sdist: built from the tree, and judged by their contents."""

from __future__ import annotations

import re
import tarfile
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path

PACKAGES = ("ottla", "ottla_wire", "pyspark_ottla", "broker_embedded")
"""What the wheel installs. Anything else in it would land in everybody's site-packages."""

NEW_SERVICE = "ottla/new_service/"
"""What `ottla new` writes, with its tests."""

NEEDED_IN_SDIST = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "hatch_build.py",
    "tests/conftest.py",
)
NOT_IN_SDIST = ("tools/", "benchmarks/", "tests/benchmarks/", "build/", ".venv", ".git/")

NEEDED_TO_PUBLISH = ("Documentation", "Repository", "Issues", "Changelog")
"""Project URLs. They stand in `pyproject.toml` alone; errors, the site and the README at the package index use them."""


@dataclass(frozen=True, slots=True)
class Package:
    """A built file and the names in it."""

    path: Path
    names: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size


def read_wheel(path: Path) -> Package:
    with zipfile.ZipFile(path) as archive:
        return Package(path, tuple(archive.namelist()))


def read_sdist(path: Path) -> Package:
    """Names without the folder that all of them begin with."""
    with tarfile.open(path) as archive:
        names = (member.name for member in archive.getmembers() if member.isfile())
        return Package(path, tuple(name.partition("/")[2] for name in names))


def problems_of_wheel(wheel: Package) -> list[str]:
    found = []
    roots = {name.split("/")[0] for name in wheel.names}
    foreign = sorted(root for root in roots if root not in PACKAGES and not root.endswith(".dist-info"))
    found += [f"wheel: found {root}, wanted only {', '.join(PACKAGES)}" for root in foreign]
    found += [f"wheel: {package} is missing" for package in PACKAGES if package not in roots]
    for wanted in ("ottla/py.typed", "broker_embedded/py.typed"):
        if wanted not in wheel.names:
            found.append(f"wheel: {wanted} is missing, so type checkers ignore the package")
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.names):
        found.append("wheel: the licence text is missing")
    own = [name for name in wheel.names if not name.startswith(NEW_SERVICE)]
    unwanted = [name for name in own if "/tests/" in name]
    unwanted += [name for name in wheel.names if "__pycache__" in name or name.endswith(".pyc")]
    return found + [f"wheel: found {name}, which is no part of the product" for name in unwanted]


def problems_of_sdist(sdist: Package) -> list[str]:
    found = [f"sdist: {name} is missing" for name in NEEDED_IN_SDIST if name not in sdist.names]
    unwanted = [name for name in sdist.names if "__pycache__" in name or name.startswith(NOT_IN_SDIST)]
    return found + [f"sdist: found {name}, which is no part of it" for name in unwanted]


def metadata_of(wheel: Package) -> dict[str, list[str]]:
    """Field: values, from the wheel's METADATA."""
    (name,) = (name for name in wheel.names if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(wheel.path) as archive:
        message = message_from_bytes(archive.read(name))
    return {key: [str(value) for value in message.get_all(key, [])] for key in message}


def missing_addresses(fields: dict[str, list[str]]) -> list[str]:
    """Project URLs without which a package must not be published: pages that it names would lead nowhere."""
    found = {label.strip() for label, _, _ in (each.partition(",") for each in fields.get("Project-URL", []))}
    return [label for label in NEEDED_TO_PUBLISH if label not in found]


def has_section(changelog: str, version: str) -> bool:
    """Whether a heading of the changelog names the version."""
    return re.search(rf"^## .*(?<![\d.]){re.escape(version)}(?![\d.])", changelog, re.MULTILINE) is not None
