"""Python packages that cannot stand beside Ottla's tests, in a folder of their own.

gmqtt brings a package `tests`, which would hide this one. A program of a test runs with such a folder as PYTHONPATH.
Each is installed once, into the cache of the user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from debian_programs import CACHE

_INSTALL_S = 240


def folder_of(requirement: str) -> str:
    """The folder with a package, such as `gmqtt==0.8.0`, and what it needs. Skips where it cannot be had."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = CACHE / f"{requirement}-python{python}"
    if folder.exists():
        return str(folder)
    building = CACHE / f"{folder.name}.{os.getpid()}"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        got = subprocess.run(
            [*command, "--target", str(building), requirement], capture_output=True, text=True, timeout=_INSTALL_S
        )
    except subprocess.TimeoutExpired:
        shutil.rmtree(building, ignore_errors=True)
        pytest.skip(f"{requirement}: pip install did not end in {_INSTALL_S} s")
    if got.returncode:
        shutil.rmtree(building, ignore_errors=True)
        pytest.skip(f"{requirement}: pip install: {got.stderr.strip()[-300:]}")
    try:
        building.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(building)
    return str(folder)
