"""What a benchmark measured is written as lines of JSON, and read again as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from results import Results, quartiles, read


def written(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "part.jsonl").read_text().splitlines()]


def test_a_line_says_what_who_how_much_and_how_far_apart(tmp_path: Path) -> None:
    results = Results("part", tmp_path)
    results.add("rate", "ottla", [3.0, 1.0, 2.0], "k records/s", goal=1.5, x=10)
    results.close()
    head, line = written(tmp_path)
    assert (head["part"], head["quick"]) == ("part", False)
    assert line == {
        "what": "rate",
        "contender": "ottla",
        "value": 2.0,
        "unit": "k records/s",
        "runs": [3.0, 1.0, 2.0],
        "spread": [1.5, 2.5],
        "goal": 1.5,
        "x": 10,
    }


def test_what_is_read_is_what_was_added(tmp_path: Path) -> None:
    results = Results("part", tmp_path, is_quick=True)
    added = results.add("rate", "ottla", [3.0, 1.0], "k records/s")
    results.problem("rate", "peer", "not installed")
    results.close()
    part = read("part", tmp_path)
    assert part is not None
    assert part.results == (added,)
    assert part.get("rate", "ottla") == added
    assert part.get("rate", "peer") is None
    assert part.problems == (("rate", "peer", "not installed"),)
    assert part.head["quick"]


def test_a_part_that_never_ran_is_none(tmp_path: Path) -> None:
    assert read("part", tmp_path) is None


def test_an_unfinished_part_leaves_the_earlier_one(tmp_path: Path) -> None:
    first = Results("part", tmp_path)
    first.add("rate", "ottla", [1.0], "k records/s")
    first.close()
    Results("part", tmp_path).add("rate", "ottla", [9.0], "k records/s")
    part = read("part", tmp_path)
    assert part is not None
    assert part.results[0].value == 1.0


def test_nothing_is_noted_without_a_run(tmp_path: Path) -> None:
    results = Results("part", tmp_path)
    assert results.add("rate", "ottla", [], "k records/s") is None
    results.close()
    assert len(written(tmp_path)) == 1


@pytest.mark.parametrize(
    ("runs", "wanted"),
    [([5.0], (5.0, 5.0)), ([5.0, 1.0], (1.0, 5.0)), ([1.0, 2.0, 3.0, 4.0, 5.0], (2.0, 4.0))],
)
def test_quartiles_of_few_runs_are_their_ends(runs: list[float], wanted: tuple[float, float]) -> None:
    assert quartiles(runs) == wanted
