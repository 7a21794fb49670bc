"""The page on traps, followed literally: a cluster that has them all, what the doctor says, each fix, and silence."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from follow_page import blocks_of, follow

pytestmark = pytest.mark.complete

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "find-traps.md"

SEEDS = {"REP01", "REP02", "REP04", "REP06", "MSG01", "STO01", "STO03", "AVL03", "GRP02", "GRP04"}
"""Replication factor 1, auto-creation, min.insync.replicas, unclean elections, sizes that disagree, retention.bytes, a
record dated a year ahead, a lost log directory, members without partitions, records about to be lost."""


@pytest.mark.timeout(400)
def test_every_step_does_what_the_page_says(tmp_path: Path) -> None:
    assert follow(PAGE, tmp_path, Path(sys.executable).parent) > 20


def test_the_page_has_all_traps_and_takes_each_away_with_the_command_that_the_doctor_names() -> None:
    blocks = [block for block in blocks_of(PAGE) if block.language == "console"]
    (said,) = [block.text for block in blocks if "fix: " in block.text]
    assert set(re.findall(r"\b[A-Z]{3}\d\d\b", said)) >= SEEDS
    typed = {
        line[2:].removesuffix(" --yes") for block in blocks for line in block.text.splitlines() if line[:2] == "$ "
    }
    named = {command.partition(";")[0] for command in re.findall(r"fix: (ottla .*)", said)}
    otherwise = {
        "ottla topics set-replicas pyaments 3",  # it was a typing error, and is deleted
        "ottla topics set TOPIC min.insync.replicas=2",  # set for all topics at once
    }
    for command in named - otherwise:
        pattern = re.escape(command).replace(r"\.\.\.", ".*")
        assert any(re.fullmatch(pattern, each) for each in typed), command
