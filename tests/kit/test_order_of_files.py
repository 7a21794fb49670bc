"""In which order processes take files of tests."""

from __future__ import annotations

from pathlib import Path
from random import Random

from order_of_files import AT_A_TIME, LONG, MANY_PROCESSES, ONE_PROCESS, next_file, process_of

ROOT = Path(__file__).parents[2]


def test_files_that_are_named_are_there_and_named_once() -> None:
    named = [*MANY_PROCESSES, *LONG]
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert len(named) == len(set(named)) > 20


def test_a_file_stays_in_one_process_and_so_do_the_files_of_a_few_folders() -> None:
    assert process_of("tests/wire/test_reader.py::TestA::test_b[x/y::z]") == "tests/wire/test_reader.py"
    for folder in ONE_PROCESS:
        assert (ROOT / folder / "conftest.py").exists()
        assert process_of(f"{folder}/test_a.py::test_b") == process_of(f"{folder}/test_c.py::test_d") == folder
        assert process_of(f"{folder}_more/test_a.py::test_b") == f"{folder}_more/test_a.py"


def test_what_starts_many_processes_is_first_and_a_few_run_side_by_side() -> None:
    waiting = {
        "tests/a.py": 1,
        LONG[1]: 1,
        MANY_PROCESSES[2]: 1,
        MANY_PROCESSES[1]: 1,
        MANY_PROCESSES[3]: 1,
        LONG[0]: 1,
    }
    running: list[str] = []
    while waiting:
        running.append(next_file(waiting, running))
        del waiting[running[-1]]
    assert running == [MANY_PROCESSES[1], MANY_PROCESSES[2], LONG[0], LONG[1], "tests/a.py", MANY_PROCESSES[3]]


def test_six_processes_take_every_file_once_and_the_rest_in_the_order_given() -> None:
    """Whatever they take time for; the last files may be of many processes where nothing else is left."""
    others = [f"tests/{number}.py" for number in range(60)]
    for seed in range(50):
        chance = Random(seed)
        waiting = dict.fromkeys([*others, *LONG, *MANY_PROCESSES])
        running: list[str] = []
        taken: list[str] = []
        while waiting:
            if len(running) == 6:
                running.remove(chance.choice(running))
            file = next_file(waiting, running)
            del waiting[file]
            taken.append(file)
            running.append(file)
            at_once = sum(each in MANY_PROCESSES for each in running)
            assert at_once <= AT_A_TIME or not set(waiting) - set(MANY_PROCESSES)
        assert sorted(taken) == sorted([*others, *LONG, *MANY_PROCESSES])
        assert [file for file in taken if file in others] == others
        assert [file for file in taken if file in LONG] == list(LONG)
