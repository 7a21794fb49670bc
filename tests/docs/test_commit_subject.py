"""The hook on commit messages refuses a subject that says neither the area nor what changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from commit_subject import EXAMPLE, LONGEST, problem

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "message",
    [
        EXAMPLE,
        "consumer: keep key order when a retry write fails\n\nThe write of the first record failed.",
        "retry topics: write one by one\n# comments of git\n",
        "\n# Please enter the message\ndocs: x",
        "Merge branch 'main'",
        'Revert "docs: x"',
        "x: " + "y" * (LONGEST - 3),
    ],
)
def test_a_subject_of_area_and_change_passes(message: str) -> None:
    assert problem(message) is None


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("", "found the subject ''"),
        ("Fix things", "wanted `area: what changes`"),
        ("Docs: x", "wanted `area: what changes`"),
        ("docs:x", "wanted `area: what changes`"),
        ("docs: ", "wanted `area: what changes`"),
        ("x: " + "y" * (LONGEST - 2), f"found a subject of {LONGEST + 1} characters, wanted {LONGEST} at most"),
        ("docs: x.", "full stop"),
        ("docs: x\nbody", "wanted an empty line"),
    ],
)
def test_another_subject_is_refused_with_what_is_wanted(message: str, words: str) -> None:
    found = problem(message)
    assert found is not None
    assert words in found


def test_the_hook_runs_and_ends_with_one_for_a_bad_message(tmp_path: Path) -> None:
    (hooks,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    (hook,) = [hook for hook in hooks["hooks"] if hook.get("stages") == ["commit-msg"]]
    message = tmp_path / "message"
    message.write_text("Fix things", encoding="utf-8")
    script = hook["entry"].split()[1]
    done = subprocess.run([sys.executable, script, str(message)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "wanted `area: what changes`" in done.stderr
