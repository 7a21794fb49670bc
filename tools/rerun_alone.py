"""Run tests, and run each that failed once more, alone: how CI runs the tests.

    python tools/rerun_alone.py NAME [pytest's options]

A test that fails and then passes alone is printed as FLAKY with what both runs printed, and does not fail the run: it
is a defect of the product or of the test that has to be explained. The exit code is 1 if a test fails twice, or if more
than `MAX_RERUNS` fail (something is broken, and running them all alone would take too long), else pytest's own.
NAME tells runs that go on side by side apart: the failures of one stand in `build/NAME-failures.json`.

The same file is the pytest plugin that lists the failures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

MAX_RERUNS: Final = 12
_LIST: Final = "OTTLA_FAILED_TESTS"
"""The variable that names the file of failures. The plugin does nothing without it."""
_TESTS_FAILED: Final = 1
"""pytest's exit code when all was collected and run, and some tests failed."""

_failed: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a failed test with what it printed. With pytest-xdist the controlling process gets all reports."""
    if report.failed:
        sections = [f"--- {title} ---\n{text}" for title, text in report.sections]
        _failed[report.nodeid] = "\n".join([_failed.get(report.nodeid, ""), report.longreprtext, *sections]).strip()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the failures; a process that runs tests for another one writes nothing."""
    if _LIST in os.environ and not hasattr(session.config, "workerinput"):
        Path(os.environ[_LIST]).write_text(json.dumps(_failed), "utf-8")


def run(name: str, options: Sequence[str]) -> int:
    """Run the tests, rerun the failures alone. Returns the exit code."""
    failures = Path("build", f"{name}-failures.json")
    failures.parent.mkdir(exist_ok=True)
    failures.unlink(missing_ok=True)
    paths = ["tools", *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), _LIST: str(failures)}
    command = [sys.executable, "-m", "pytest", "-p", "rerun_alone", *options]
    code = subprocess.run(command, env=environment, check=False).returncode
    if code != _TESTS_FAILED:
        return code
    failed: dict[str, str] = json.loads(failures.read_text("utf-8"))
    if not failed or len(failed) > MAX_RERUNS:
        print(f"{len(failed)} tests failed: only 1 to {MAX_RERUNS} are run again", flush=True)
        return code
    twice = [test for test, output in failed.items() if not _passes_alone(test, output)]
    print(f"{len(failed)} failed, {len(failed) - len(twice)} of them FLAKY", *twice, sep="\nFAILED TWICE ", flush=True)
    return 1 if twice else 0


def _passes_alone(test: str, first_output: str) -> bool:
    print(f"==> once more, alone: {test}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", test]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    passes = ended.returncode == 0
    title = "FLAKY" if passes else "FAILED TWICE"
    print(f"{title} {test}\n--- first run ---\n{first_output}\n--- alone ---\n{ended.stdout}", flush=True)
    return passes


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
