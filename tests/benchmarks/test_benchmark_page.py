"""The page has a line for every goal, says what was not measured, and judges what was."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import first_page
import page_words
import pytest
from first_page import Tables
from goals import DROPPED, GOALS
from goals_of_hot_paths import CPU_RATIO
from judging import State, advantage, at_least, at_most, ratio, ratio_of
from render import PARTS, page_of
from results import Part, Results, read
from run import MINUTES
from run import PARTS as PROGRAMS
from tables import figures_table

ROOT = Path(__file__).parents[2]


def part_of(folder: Path, name: str, *added: tuple[str, str, list[float]]) -> dict[str, Part]:
    results = Results(name, folder)
    for what, contender, runs in added:
        results.add(what, contender, runs, "k records/s", x=1)
    results.close()
    part = read(name, folder)
    assert part is not None
    return {name: part}


def lines_of(page: str, what: str) -> list[str]:
    return [line for line in page.splitlines() if f"| {what} |" in line]


def test_without_any_result_every_goal_is_not_measured() -> None:
    page = page_of({}, {})
    for goal in GOALS:
        (line, *_) = lines_of(page, goal.what)
        assert State.NOT_MEASURED.value in line
    assert f"0 met, 0 not met, {len(GOALS)} not measured" in page


def test_the_page_in_the_docs_has_every_goal() -> None:
    page = (ROOT / "docs" / "benchmark-results.md").read_text(encoding="utf-8")
    assert [goal.what for goal in GOALS if not lines_of(page, goal.what)] == []


def test_the_page_in_the_docs_has_the_words_of_its_program() -> None:
    page = (ROOT / "docs" / "benchmark-results.md").read_text(encoding="utf-8")
    words = {"DROPPED": DROPPED, **{name: text for name, text in vars(page_words).items() if name.isupper()}}
    assert [name for name, text in words.items() if text not in page] == []


def test_the_page_in_the_docs_shows_only_plots_that_there_are() -> None:
    page = (ROOT / "docs" / "benchmark-results.md").read_text(encoding="utf-8")
    shown = {piece.partition(")")[0] for piece in page.split("](benchmarks/")[1:]}
    assert [name for name in shown if not (ROOT / "docs" / "benchmarks" / name).is_file()] == []


class TestTheFirstPage:
    TABLES = Tables.of((ROOT / "docs" / "benchmark-results.md").read_text(encoding="utf-8"))

    def test_its_figures_are_those_of_the_tables(self) -> None:
        page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
        assert page == first_page.page_of(self.TABLES), "run: python benchmarks/first_page.py"
        assert first_page.MISSING not in page

    def test_its_plots_are_drawn_from_the_tables(self) -> None:
        for name, svg in first_page.plots_of(self.TABLES).items():
            assert (ROOT / "docs" / "benchmarks" / name).read_text(encoding="utf-8") == svg
            ElementTree.fromstring(svg)

    def test_a_figure_that_was_not_measured_says_so(self) -> None:
        assert first_page.MISSING in first_page.page_of(Tables.of(page_of({}, {})))
        assert set(first_page.plots_of(Tables.of(page_of({}, {})))) == {"consuming.svg", "producing.svg"}

    def test_a_cell_is_found_by_its_section_and_the_start_of_its_row(self) -> None:
        tables = Tables.of("# x\n\n## One\n\n| a | b |\n|---|---|\n| send | 1,200 [1–2] |\n\n## Two\n")
        assert tables.cell("One", 1, "send") == "1,200"
        assert tables.number("One", 1, "send") == 1200
        assert tables.number("Two", 1, "send") is None


def test_a_goal_that_is_missed_says_why_and_one_that_is_met_does_not(tmp_path: Path) -> None:
    parts = part_of(
        tmp_path,
        "hot_paths",
        (CPU_RATIO, "ottla: send", [0.5, 0.6, 0.4]),
        (CPU_RATIO, "ottla: send_many", [1.2, 1.3, 1.1]),
    )
    page = page_of(parts, {})
    (missed,) = lines_of(page, f"ottla: send: {CPU_RATIO}")
    (met,) = lines_of(page, f"ottla: send_many: {CPU_RATIO}")
    assert "| 0.5 | **not met** |" in missed
    assert "| 1.2 | met |" in met
    why = page.partition("Why those are not met")[2].partition("\n## ")[0]
    assert f"- ottla: send: {CPU_RATIO} (0.5). The raw loop" in why
    assert "send_many: CPU" not in why


def test_a_ratio_is_taken_within_the_rounds(tmp_path: Path) -> None:
    # The machine was twice as fast in the second round: the ratio is the same in each.
    parts = part_of(tmp_path, "sdk", ("consume", "a", [50.0, 100.0, 55.0]), ("consume", "b", [100.0, 200.0, 110.0]))
    ours, theirs = parts["sdk"].results
    assert ratio_of(ours, theirs) == 0.5
    assert ratio("sdk", ("consume", "a"), ("consume", "b"), 0.5)(parts).state is State.MET
    assert ratio("sdk", ("consume", "a"), ("consume", "b"), 0.51)(parts).state is State.NOT_MET
    assert ratio("sdk", ("consume", "a"), ("consume", "c"), 0.5)(parts).state is State.NOT_MEASURED


def test_a_limit_counts_its_own_value_as_kept(tmp_path: Path) -> None:
    parts = part_of(tmp_path, "cluster", ("start", "ottla", [50.0]))
    assert at_most("cluster", "start", "ottla", 50, "ms")(parts).state is State.MET
    assert at_most("cluster", "start", "ottla", 49, "ms")(parts).state is State.NOT_MET


def test_a_limit_from_below_counts_its_own_value_as_reached(tmp_path: Path) -> None:
    parts = part_of(tmp_path, "messaging", ("dispatch", "ottla", [50.0]))
    assert at_least("messaging", "dispatch", "ottla", 50, "records/s")(parts).state is State.MET
    assert at_least("messaging", "dispatch", "ottla", 51, "records/s")(parts).state is State.NOT_MET
    assert at_least("messaging", "dispatch", "peer", 51, "records/s")(parts).state is State.NOT_MEASURED


@pytest.mark.parametrize(("unit", "words"), [("records/s", "0.50"), ("µs per record", "2.00")])
def test_an_advantage_is_more_of_a_rate_and_less_of_a_cost(unit: str, words: str, tmp_path: Path) -> None:
    results = Results("once", tmp_path)
    results.add("x", "ottla", [5.0, 10.0, 15.0], unit)
    results.add("x", "peer", [10.0, 20.0, 30.0], unit)
    found = advantage("once", "x", "peer", 1.0)({"once": results.part()})
    assert (found.words, found.state) == (words, State.MET if words == "2.00" else State.NOT_MET)


def test_figures_with_the_same_columns_share_a_table(tmp_path: Path) -> None:
    results = Results("spark_state", tmp_path)
    for what, contender in (("a: CPU", "ottla"), ("a: CPU", "kafka"), ("b: time", "ottla"), ("c: d: time", "ottla")):
        results.add(what, contender, [1.0], "s")
    assert "\n".join(figures_table(results.part())) == (
        "| | CPU, s | CPU, s, kafka |\n|---|---|---|\n| a | 1 | 1 |\n\n"
        "| | time, s |\n|---|---|\n| b | 1 |\n| c: d | 1 |"
    )


@pytest.mark.parametrize("name", PARTS)
def test_each_part_makes_a_section_of_its_own(name: str, tmp_path: Path) -> None:
    everything = page_of({}, {}).count("Not measured.\n")
    page = page_of(part_of(tmp_path, name, ("x: y", "ottla", [1.0, 2.0]), ("x: y", "kafka", [2.0, 2.0])), {})
    assert page.count("Not measured.\n") == everything - 1


def test_every_part_of_the_harness_has_its_programs() -> None:
    named = {program.name for programs in PROGRAMS.values() for program in programs}
    assert [name for name in named if not (ROOT / "benchmarks" / name).is_file()] == []


def test_the_harness_keeps_to_the_minutes_that_it_promises() -> None:
    programs = [program for programs in PROGRAMS.values() for program in programs]
    assert sum(program.seconds for program in programs) <= MINUTES * 60
    assert f"less than {MINUTES} minutes" in page_of({}, {})


def test_make_help_names_every_part_and_the_minutes() -> None:
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if '@echo "make bench ' in line]
    assert f"(ONLY={'|'.join(PROGRAMS)} QUICK=1)" in line
    assert f"less than {MINUTES} minutes" in line


def test_every_program_knows_the_options_that_the_harness_gives_it() -> None:
    unknown = [
        (program.name, given)
        for programs in PROGRAMS.values()
        for program in programs
        for given in (*program.arguments, *program.quick, "--results")
        if given.startswith("--") and f'"{given}"' not in (ROOT / "benchmarks" / program.name).read_text()
    ]
    assert unknown == []
