"""What is logged shows no payloads, whatever is installed beside Ottla."""

from __future__ import annotations

import io

import pytest
import rich  # noqa: F401  # with it structlog prints the local variables of a traceback
import structlog

from ottla.telemetry import log_event


def fails_with(payload: str) -> Exception:
    try:
        raise ConnectionError("the database is away")
    except ConnectionError as error:
        return error


@pytest.mark.filterwarnings("ignore:Remove `format_exc_info`")  # structlog before 26.1, of a traceback as text
@pytest.mark.parametrize("is_configured", [False, True])
def test_a_logged_error_has_its_traceback_and_no_local_variables(
    is_configured: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = io.StringIO()
    if is_configured:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(printed), cache_logger_on_first_use=False)
    try:
        error = fails_with("card 4111 1111")
        log_event("delivery_callback_failed", "error", {"topic": "orders", "error": repr(error), "exc_info": error})
    finally:
        structlog.reset_defaults()
    text = printed.getvalue() + capsys.readouterr().err

    assert "delivery_callback_failed" in text
    assert "Traceback (most recent call last)" in text
    assert "ConnectionError: the database is away" in text
    assert "in fails_with" in text
    assert "4111" not in text
