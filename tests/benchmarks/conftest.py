"""The benchmarks and the soak are programs of their own beside the tests; what decides in them is tested here."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
for folder in ("benchmarks", "tests/torture"):
    sys.path.insert(0, str(ROOT / folder))
