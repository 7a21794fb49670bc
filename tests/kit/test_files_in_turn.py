"""Files of tests that are imported when their turn comes, in small projects of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CONFTEST = """
from pathlib import Path

from files_in_turn import FilesInTurn

def pytest_configure(config):
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(FilesInTurn(config.rootpath / "listed.txt"))
"""
IMPORTED = "from pathlib import Path\nwith Path(__file__).with_suffix('.imported').open('a') as file: file.write('x')\n"
IN_A_CLASS = """
import pytest

@pytest.fixture(scope="module")
def made():
    return []

@pytest.mark.parametrize("number", [1, 2])
class TestNumbers:
    def test_one(self, made, number):
        made.append(number)
        assert made == [1, 2][:number]  # in one process, in order, with the module's fixture
"""
LEFT_OPEN = """
import gc

class Left:
    def __del__(self):
        with open("closed", "w"): pass

def test_leaves_a_cycle():
    left = Left()
    left.itself = left
    gc.collect()  # it is old when it becomes garbage: no small collection finds it

def test_is_last(): pass  # while it runs the next file is imported already
"""
LOOKS = """
import gc
from pathlib import Path

def test_looks():
    gc.collect()
    assert Path("closed").exists()
"""
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Pytest in the folder, on processes that have this list of tests: its exit code and output."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {Path(__file__).parent}\n")

    def run(listed: list[str], processes: str = "2") -> tuple[int, str]:
        (tmp_path / "listed.txt").write_text("\n".join([*listed, "", "3 tests collected in 0.1s"]))
        options = ["-q", "-n", processes, "--dist", "loadfile", "-p", "no:cacheprovider", "--import-mode=importlib"]
        command = [sys.executable, "-m", "pytest", *options]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
        return ran.returncode, ran.stdout + ran.stderr

    return run


def test_a_file_is_imported_by_the_process_that_runs_it_and_by_no_other(run: Run, tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(IMPORTED + "def test_one(): pass\ndef test_two(): pass\n")
    (tmp_path / "test_b.py").write_text(IMPORTED + IN_A_CLASS)
    (tmp_path / "test_new.py").write_text(IMPORTED + "def test_it(): pass\n")
    numbers = [f"test_b.py::TestNumbers::test_one[{number}]" for number in (1, 2)]
    code, said = run(["test_a.py::test_one", "test_a.py::test_two", *numbers])
    assert code == 0, said
    assert "5 passed" in said
    imported = {path.stem: len(path.read_text()) for path in tmp_path.glob("*.imported")}
    assert imported == {"test_a": 1, "test_b": 1, "test_new": 2}  # what is not listed is imported by both


def test_what_is_not_as_the_list_says_fails(run: Run, tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    (tmp_path / "test_b.py").write_text("import nothing_of_this_name\ndef test_one(): pass\n")
    code, said = run(["test_a.py::test_one", "test_b.py::test_one"])
    assert code == 1, said
    assert "the list of tests is of other files, `make collected` writes a new one: test_a.py::test_two" in said
    assert "test_b.py cannot be collected" in said
    assert "No module named 'nothing_of_this_name'" in said
    assert "passed" not in said


def test_what_the_tests_of_a_file_left_is_still_collected_when_the_next_file_was_imported(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "test_a.py").write_text(LEFT_OPEN)
    (tmp_path / "test_b.py").write_text(LOOKS)
    code, said = run(["test_a.py::test_leaves_a_cycle", "test_a.py::test_is_last", "test_b.py::test_looks"], "1")
    assert code == 0, said
