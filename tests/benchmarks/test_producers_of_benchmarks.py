"""The programs that measure producers run from start to end, with few records."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.complete

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "results", "expected"),
    [
        (("sdk_producer.py", "--records", "400", "--rounds", "1"), "producer.jsonl", ("produce", "send")),
        (
            ("telemetry.py", "--quick", "--only", "send", "--modes", "absent", "hooks"),
            "telemetry.jsonl",
            ("send, hooks", "ottla"),
        ),
    ],
    ids=["clients", "telemetry"],
)
def test_a_program_writes_its_results(
    arguments: tuple[str, ...], results: str, expected: tuple[str, str], tmp_path: Path
) -> None:
    program, *options = arguments
    command = [sys.executable, str(ROOT / "benchmarks" / program), *options, "--results", str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert finished.returncode == 0, finished.stderr
    _, *rows = (json.loads(line) for line in (tmp_path / results).read_text().splitlines())
    values = {(row["what"], row["contender"]): row["value"] for row in rows if "value" in row}
    assert values[expected] > 0
