"""What `pyproject.toml` says of the project."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def project() -> dict[str, Any]:
    """The table `[project]`."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def address(label: str) -> str | None:
    """The project URL `label`, which stands in `pyproject.toml` alone; None while there is none."""
    found: str | None = project().get("urls", {}).get(label)
    return found


def from_root(name: str) -> str:
    """The absolute path of what the repository has by this name; a name that it does not have, as it is."""
    path = ROOT / name
    return str(path) if path.exists() else name
