"""What tools/client_suites.py reads from the output of librdkafka's test runner."""

from __future__ import annotations

from pathlib import Path

import client_suites

TABLE = """
struct test tests[] = {
    {.name = "<MAIN>", .flags = TEST_F_LOCAL},
    _TEST(0001_remote, 0),
    _TEST(0002_alone, TEST_F_LOCAL),
    _TEST(0003_by_hand, TEST_F_MANUAL),
    _TEST(0004_versioned, 0, TEST_BRKVER(0, 9, 0, 0), .scenario = "noautocreate"),
    _TEST(0170_share_consumer_x, 0, TEST_BRKVER(4, 2, 0, 0)),
    {NULL}};
"""


def test_the_tests_that_need_a_broker_are_read_from_the_runners_table(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test.c").write_text(TABLE)
    assert [(test.number, test.scenario) for test in client_suites.runner_tests(tmp_path)] == [
        ("0001", "default"),
        ("0004", "noautocreate"),
        ("0170", "default"),
    ]


def outcomes(output: str, *names: str) -> dict[str, str]:
    return {each.name: each.outcome for each in client_suites.outcomes(output, set(names))}


def test_the_summary_says_what_became_of_each_test() -> None:
    output = (
        "|\x1b[32m 0001_one    | PASSED | 1 s\n|\x1b[31m 0001_two | FAILED | 2 s\n|\x1b[36m 0001_three | SKIPPED |\n"
    )
    assert outcomes(output, "0001_one", "0001_two", "0001_three") == {
        "0001_one": "passed",
        "0001_two": "failed",
        "0001_three": "skipped",
    }


def test_of_a_run_that_was_cut_off_only_what_had_passed_is_passed() -> None:
    output = "\x1b[32m====== Test 0001_one PASSED ======\x1b[0m\n====== Running test 0001_two ======\n"
    assert outcomes(output, "0001_one", "0001_two") == {"0001_one": "passed", "0001_two": "failed"}
