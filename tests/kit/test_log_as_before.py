"""A test that captured events, which configures structlog, leaves the next test's events where they go."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from ottla.telemetry.logs.event_log import log_event

pytestmark = pytest.mark.complete


@pytest.mark.parametrize("number", [1, 2])
def test_events_go_to_stderr_whatever_the_test_before_captured(capsys: pytest.CaptureFixture[str], number: int) -> None:
    log_event("topic_created", "info", {"topic": f"orders-{number}"})
    with capture_logs() as captured:
        log_event("topic_created", "info", {"topic": "captured"})

    shown = capsys.readouterr()
    assert f"orders-{number}" in shown.err
    assert not shown.out
    assert [each["topic"] for each in captured] == ["captured"]
