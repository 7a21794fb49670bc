"""The benchmarks and the soak are programs of their own beside the tests; what decides in them is tested here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
for folder in ("benchmarks", "tests/torture"):
    sys.path.insert(0, str(ROOT / folder))


@pytest.fixture(autouse=True)
def nobody_watches_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part begins by watching for half a second how busy the machine is; tests need not wait for that."""
    import results

    monkeypatch.setattr(results, "WATCHED_S", 0.0)
