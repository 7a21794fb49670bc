"""Programs of Debian packages, unpacked into a folder: nothing of the system is installed or changed.

The packages come from the machine's own Debian archive with `apt-get download`, once, into the cache of the user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("OTTLA_TEST_CACHE", Path.home() / ".cache" / "ottla-tests"))
_DOWNLOAD_S = 240


def unpacked(name: str, packages: list[str]) -> Path:
    """The root folder of these packages. Skips where they cannot be had."""
    root = CACHE / name
    if (root / ".complete").exists():
        return root
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            pytest.skip(f"{name}: no {tool}: its packages are unpacked on Debian only")
    building = CACHE / f"{name}.{os.getpid()}"
    building.mkdir(parents=True)
    try:
        got = subprocess.run(
            ["apt-get", "download", *packages], cwd=building, capture_output=True, text=True, timeout=_DOWNLOAD_S
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{name}: apt-get download did not end in {_DOWNLOAD_S} s")
    if got.returncode:
        shutil.rmtree(building)
        pytest.skip(f"{name}: apt-get download {' '.join(packages)}: {got.stderr.strip()[-300:]}")
    for package in sorted(building.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(building)], check=True, capture_output=True)
        package.unlink()
    (building / ".complete").touch()
    try:
        building.rename(root)
    except OSError:  # another process was first
        shutil.rmtree(building)
    return root


def libraries_of(root: Path) -> str:
    """The folders of shared libraries, as LD_LIBRARY_PATH has them."""
    return ":".join(str(folder) for folder in sorted((root / "usr" / "lib").glob("*-linux-gnu")))
