"""The interpreters of peers: Quix Streams asks for a confluent-kafka older than Ottla's, so it has its own environment.

`make bench` makes that environment beside the one that the other peers share. Each contender is a process of its own,
started with the interpreter that has its package.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

QUIX = "quixstreams"
_QUIX_PYTHON = Path(f"{sys.prefix}-quix", "bin", "python")


def python_of(contender: str) -> str:
    """Return the interpreter to start a contender with, by its name."""
    is_elsewhere = contender.startswith(QUIX) and not _is_here(QUIX) and _QUIX_PYTHON.exists()
    return str(_QUIX_PYTHON) if is_elsewhere else sys.executable


def is_installed(package: str) -> bool:
    """Return whether a peer's package can be had, here or in an environment of its own."""
    return _is_here(package) or (package == QUIX and _QUIX_PYTHON.exists())


def how_to_install(package: str) -> str:
    """Return what a report says of a peer that is left out."""
    return f"not installed (benchmarks/{'peers-quix' if package == QUIX else 'peers'}.txt)"


@cache
def _is_here(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
