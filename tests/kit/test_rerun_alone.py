"""A test that fails beside others and passes alone is printed as flaky; one that fails twice fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
FLAKY = """
from pathlib import Path

def test_passes_the_second_time():
    first = Path("seen-before")
    if not first.exists():
        first.touch()
        print("printed by the first run")
        raise AssertionError("of the first run")
"""
BROKEN = """
def test_never_passes():
    raise AssertionError("always")
"""

pytestmark = pytest.mark.complete


def rerun(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    (folder / "tools").symlink_to(TOOLS)
    (folder / "test_it.py").write_text(source)
    command = [sys.executable, "tools/rerun_alone.py", "sample", "-q", "-p", "no:cacheprovider", "test_it.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.representative
def test_a_flaky_test_is_printed_with_both_outputs_and_does_not_fail_the_run(tmp_path: Path) -> None:
    ended = rerun(tmp_path, FLAKY)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    flaky, _, alone = ended.stdout.partition("FLAKY test_it.py::test_passes_the_second_time")[2].partition("- alone -")
    assert "of the first run" in flaky
    assert "printed by the first run" in flaky
    assert "1 passed" in alone


@pytest.mark.parametrize(("source", "code"), [(BROKEN, 1), (FLAKY + BROKEN, 1), ("import nothing_like_it", 2)])
def test_a_test_that_fails_twice_and_a_file_that_cannot_be_imported_fail_the_run(
    tmp_path: Path, source: str, code: int
) -> None:
    ended = rerun(tmp_path, source)
    assert ended.returncode == code, ended.stdout + ended.stderr
    if code == 1:
        assert "FAILED TWICE test_it.py::test_never_passes" in ended.stdout
