"""Spelling of pages, docstrings, help texts and messages, by codespell's list of common mistakes.

Words that are right here and in its list stand in `pyproject.toml`, under `tool.codespell`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def misspelt(*paths: Path) -> list[str]:
    """Each word that is likely to be misspelt, with its place and what is probably meant."""
    if not paths:
        return []
    done = subprocess.run(_command(paths), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    found = [line.removeprefix(f"{ROOT}/") for line in done.stdout.splitlines() if " ==> " in line]
    if done.returncode and not found:
        raise RuntimeError(f"codespell ended with {done.returncode}: {done.stderr}")
    return found


def _command(paths: Sequence[Path]) -> list[str]:
    return [sys.executable, "-m", "codespell_lib", "--toml", str(ROOT / "pyproject.toml"), *map(str, paths)]
