"""The cost of `max_rate` and event types: to handlers that use neither, and to those that use them.

    python benchmarks/handler_costs.py                    # beside the last commit that had neither
    python benchmarks/handler_costs.py --against COMMIT   # beside another commit; only its `src` is used

*Not used*: the instructions that a plain handler takes for a record, in this checkout and in the older one, under
valgrind's cachegrind. They are the same from run to run, so they show what times on a shared machine hide. They have in
them whatever else came since that commit. *Used*: CPU time above the same handler without it, in turns within one
process (`handled.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

from goals_of_handlers import BEFORE, NOT_USED
from handled import BYTES, JSON, PLAIN
from results import Results, Shown

from ottla.testing.registry import EmbeddedRegistry

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WITHOUT = "168b939d6fa67aa5d7361348a5bc9cd962eb6d36"
"""The last commit without `max_rate` and event types."""
RECORDS_OF_BATCH = 512
FEW, MANY = 20, 120


def handled(*arguments: object, src: Path = ROOT / "src", before: Sequence[str] = ()) -> dict[str, float]:
    """Run `handled.py` on a checkout of `src`, behind another program if one is given."""
    command = [*before, sys.executable, str(HERE / "handled.py"), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(src), "PYTHONHASHSEED": "0"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"handled.py {' '.join(map(str, arguments))}: {ended.stderr}")
    found: dict[str, float] = json.loads(ended.stdout)
    return found


def instructions(name: str, src: Path, folder: Path) -> float:
    """Return the instructions of a plain handler for each record."""
    few, many = (counted(name, batches, src, folder / "counted") for batches in (FEW, MANY))
    return (many - few) / (MANY - FEW) / RECORDS_OF_BATCH


def counted(name: str, batches: int, src: Path, file: Path) -> int:
    """Return the instructions of a whole process that handles so many batches."""
    valgrind = ["valgrind", "-q", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={file}"]
    handled("count", name, batches, src=src, before=valgrind)
    summary = next(line for line in reversed(file.read_text().splitlines()) if line.startswith("summary:"))
    return int(summary.split()[1])


def src_of(commit: str, folder: Path) -> Path | None:
    """Write the `src` of a commit into the folder. Returns None if this is no checkout that has it."""
    packed = subprocess.run(
        ["git", "archive", commit, "src"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    if packed.returncode:
        return None
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def not_used(results: Results, commit: str) -> None:
    """Count the instructions of plain handlers, now and before."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        older = src_of(commit, folder)
        reason = "valgrind is not installed" if shutil.which("valgrind") is None else f"no commit {commit} here"
        if older is None or shutil.which("valgrind") is None:
            results.problem(NOT_USED.format(JSON), "ottla", reason)
            return
        for value in (BYTES, JSON):
            now, before = (instructions(value, src, folder) for src in (ROOT / "src", older))
            write_not_used(results, value, now=now, before=before)


def write_not_used(results: Results, value: str, *, now: float, before: float) -> None:
    results.add(NOT_USED.format(value), "ottla", [now], "instructions")
    results.add(NOT_USED.format(value), BEFORE, [before], "instructions")


def used(results: Results, *, rounds: int, batches: int) -> None:
    """Measure handlers that use it, beside those that do not."""
    with EmbeddedRegistry() as registry:
        write_used(results, [handled("time", batches, registry.url) for _ in range(rounds)])


def write_used(results: Results, rounds: Sequence[Mapping[str, float]]) -> None:
    """Write what each adds to the plain handler of its round."""
    for name, plain in PLAIN.items():
        results.add(f"{name}: adds", "ottla", [(each[name] - each[plain]) * 1e6 for each in rounds], "µs per record")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default=WITHOUT, metavar="COMMIT", help="the older commit")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=200, help="of 512 records, for each handler of a round")
    parser.add_argument("--quick", action="store_true", help="few short rounds: rough figures")
    parser.add_argument("--results", type=Path, help="the folder for handler_costs.jsonl")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.batches = 2, 50
    results = Shown("handler_costs", options.results, is_quick=options.quick)
    used(results, rounds=options.rounds, batches=options.batches)
    not_used(results, options.against)
    results.close()


if __name__ == "__main__":
    main()
