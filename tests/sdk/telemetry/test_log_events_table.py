"""Every event that is logged stands in the table, and every row of the table is logged somewhere."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from source_strings import first_arguments

from ottla.telemetry.logs.log_events import EVENTS, problem_of

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "ottla"
LOGS = {
    "log_event",
    "Notice",
    "notice_of",
    "_moved",
    "_event",
    "_event_of",
    "Awaited",
    "log_failure",
    "failure_notice",
    "LogWorker",
}
PASSES_ON = {  # functions through which events go whose names are given elsewhere
    "app/member/member_base.py",
    "app/member/member_core.py",
    "app/once/once_invoker.py",
    "app/queue/job_settlement.py",
    "app/queue/queue_policy.py",
    "cli/services/workers.py",
    "retrying.py",
    "consumer/outcomes/failed_delivery.py",
    "consumer/outcomes/notices.py",
    "consumer/partitions/log_watch.py",
}


@pytest.fixture(scope="module")
def logged() -> dict[str, set[str]]:
    """The files that log each event."""
    found: dict[str, set[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        name = str(file.relative_to(SOURCE))
        for line, events in first_arguments(file, LOGS):
            assert events or name in PASSES_ON, f"{name}:{line}: the event is not a constant: a table cannot know it"
            for event in events:
                found.setdefault(event, set()).add(name)
    return found


def test_every_logged_event_has_a_row(logged: dict[str, set[str]]) -> None:
    assert {event: files for event, files in logged.items() if event not in EVENTS} == {}


def test_every_row_is_logged(logged: dict[str, set[str]]) -> None:
    assert set(EVENTS) - set(logged) == set()


def test_the_page_is_current() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "telemetry_page.py"))

    assert tool["PAGE"].read_text() == tool["render"](), "run: python tools/telemetry_page.py"


@pytest.mark.parametrize(
    ("event", "level", "fields", "problem"),
    [
        ("topic_created", "info", {"topic": "orders"}, None),
        ("topic_created", "info", {"topic": "orders", "trace_id": "0" * 32}, None),
        ("topic_made", "info", {"topic": "orders"}, "is not in"),
        ("topic_created", "error", {"topic": "orders"}, "has level 'error'"),
        ("topic_created", "info", {}, r"missing fields \['topic'\]"),
        ("topic_created", "info", {"topic": "orders", "key": "7"}, r"does not have \['key'\]"),
    ],
)
def test_an_event_is_compared_with_its_row(
    event: str, level: str, fields: dict[str, object], problem: str | None
) -> None:
    found = problem_of(event, level, fields)

    if problem is None:
        assert found is None
    else:
        with pytest.raises(AssertionError, match=problem):
            raise AssertionError(found)
