"""Results of benchmarks as a program reads them: a file of JSON lines per part, in an untracked folder.

The first line says on what machine and with what versions; each other line is one measured thing:

    {"what": ..., "contender": ..., "value": median, "unit": ..., "runs": [...], "spread": [first, third quartile],
     "goal": null or a number}

`render.py` makes tables, plots and the account of goals from whatever files there are.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "bench-results"
BUSY = 0.2
"""A larger share of all CPUs that is busy when a part begins is somebody else's: the page says so."""

WATCHED_S = 0.5

PACKAGES = (
    *("ottla", "confluent-kafka", "aiokafka", "kafka-python", "faststream", "quixstreams"),
    *("pyspark", "pyarrow", "numpy", "fastavro", "orjson", "opentelemetry-sdk"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line. `value` is the median of `runs`, `spread` their first and third quartile."""

    what: str
    contender: str
    value: float
    unit: str
    runs: tuple[float, ...]
    spread: tuple[float, float]
    goal: float | None = None
    x: float | None = None
    """Where it is on the axis of a growth curve."""


class Results:
    """Written as they come, so that what was measured before a failure is there; visible under its name at the end."""

    def __init__(self, part: str, folder: Path | None = FOLDER, *, is_quick: bool = False) -> None:
        """`folder` None: nothing is written."""
        self._path = None if folder is None else folder / f"{part}.jsonl"
        self._lines: list[dict[str, Any]] = [{"part": part, "quick": is_quick, **machine()}]

    def add(
        self,
        what: str,
        contender: str,
        runs: Sequence[float],
        unit: str,
        *,
        goal: float | None = None,
        x: float | None = None,
    ) -> Result | None:
        """Note one thing that was measured in so many runs; nothing is noted without a run."""
        if not runs:
            return None
        result = Result(
            what=what,
            contender=contender,
            value=statistics.median(runs),
            unit=unit,
            runs=tuple(float(each) for each in runs),
            spread=quartiles(runs),
            goal=goal,
            x=x,
        )
        self._lines.append({name: getattr(result, name) for name in Result.__dataclass_fields__})
        return result

    def problem(self, what: str, contender: str, reason: str) -> None:
        """Note why something is missing."""
        self._lines.append({"what": what, "contender": contender, "problem": reason})

    def part(self) -> Part:
        """What was noted so far, as `read` would give it."""
        return _part_of({"seconds": 0.0, **self._lines[0]}, *self._lines[1:])

    def close(self) -> None:
        self._lines[0]["seconds"] = round(time.time() - self._lines[0]["began_s"], 1)
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(".partial")
        partial.write_text("".join(json.dumps(line) + "\n" for line in self._lines), encoding="utf-8")
        partial.replace(self._path)


class Shown(Results):
    """Results that are printed as they come."""

    def add(self, what: str, contender: str, runs: Sequence[float], unit: str, **more: Any) -> Result | None:
        result = super().add(what, contender, runs, unit, **more)
        if result is not None:
            print(f"{what:52} {contender:28} {result.value:14,.3f} {unit:14} {_rounded(runs)}", flush=True)
        return result

    def problem(self, what: str, contender: str, reason: str) -> None:
        super().problem(what, contender, reason)
        print(f"{what}: {contender} is left out: {reason}", flush=True)


def _rounded(runs: Sequence[float]) -> list[float]:
    return [round(run, 3) for run in runs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A file, read again."""

    head: dict[str, Any]
    results: tuple[Result, ...]
    problems: tuple[tuple[str, str, str], ...]

    def get(self, what: str, contender: str) -> Result | None:
        return next((each for each in self.results if (each.what, each.contender) == (what, contender)), None)


def read(part: str, folder: Path = FOLDER) -> Part | None:
    """What a part measured last, or None."""
    path = folder / f"{part}.jsonl"
    if not path.exists():
        return None
    return _part_of(*(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()))


def _part_of(head: dict[str, Any], *lines: dict[str, Any]) -> Part:
    results = [
        line | {"runs": tuple(line["runs"]), "spread": tuple(line["spread"])} for line in lines if "value" in line
    ]
    return Part(
        head=head,
        results=tuple(Result(**line) for line in results),
        problems=tuple((line["what"], line["contender"], line["problem"]) for line in lines if "problem" in line),
    )


def quartiles(runs: Sequence[float]) -> tuple[float, float]:
    """The first and the third; with fewer than three runs, the lowest and the highest."""
    if len(runs) < 3:
        return float(min(runs)), float(max(runs))
    first, _, third = statistics.quantiles(runs, n=4, method="inclusive")
    return first, third


def machine() -> dict[str, Any]:
    """Where and with what."""
    return {
        "began_s": time.time(),
        "busy": round(busy_share(), 2),
        "load": round(os.getloadavg()[0], 1),
        "cpus": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": _versions(),
    }


def busy_share() -> float:
    """How much of all CPUs is in use now. (The load average would still count what an earlier part did.)"""
    before = _cpu_times()
    time.sleep(WATCHED_S)
    idle, total = (later - earlier for later, earlier in zip(_cpu_times(), before, strict=True))
    return 1 - idle / total if total else 0.0


def _cpu_times() -> tuple[int, int]:
    """Ticks of all CPUs: idle, and all."""
    try:
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0, 0
    return fields[3] + fields[4], sum(fields)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.machine())


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
