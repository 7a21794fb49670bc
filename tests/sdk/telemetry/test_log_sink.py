"""Where events go: JSON lines or text on stderr, or the application's structlog; and `logging` beside them."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from ottla import configure_logging
from ottla.telemetry import add_trace_ids, log_event
from ottla.telemetry.logs import event_log as log
from ottla.telemetry.logs import log_events, log_sink
from ottla.telemetry.logs.log_sink import configure_program
from ottla.testing.waiting import wait_until

POISON = "line one\nline \u2028 two \x1b[31m \ud800"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    loggers = [logging.getLogger(), *map(logging.getLogger, ("ottla", "ottla.services", "shop", "shop.billing"))]
    before = [(each, each.level, list(each.handlers), each.propagate, each.disabled) for each in loggers]
    yield
    for logger, level, handlers, propagate, disabled in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.propagate, logger.disabled = propagate, disabled
    log_sink._format, log_sink._is_chosen = "auto", False
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_an_event_is_one_line_of_json_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.contextvars.bind_contextvars(order="7")
    log_event("topic_created", "info", {"topic": POISON})

    [line] = lines_of(capsys)

    assert line.pop("timestamp").endswith("Z")
    assert line == {"level": "info", "event": "topic_created", "order": "7", "topic": POISON}


def test_an_event_is_for_people_where_stderr_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    log_event("topic_created", "info", {"topic": "orders"})

    assert "topic_created" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
@pytest.mark.parametrize("chosen", ["json", "text"])
def test_a_chosen_format_is_kept(monkeypatch: pytest.MonkeyPatch, chosen: Any, stream: type[io.StringIO]) -> None:
    output = stream()
    monkeypatch.setattr(sys, "stderr", output)
    configure_logging(format=chosen)

    log_event("topic_created", "info", {"topic": "orders"})

    assert output.getvalue().startswith("{") == (chosen == "json")


@pytest.mark.parametrize(("level", "written"), [("debug", True), ("info", True), ("warning", False)])
def test_events_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str], level: str, written: bool) -> None:
    configure_logging(level=level)

    log_event("topic_created", "info", {"topic": "orders"})

    assert bool(lines_of(capsys)) == written


@pytest.mark.parametrize("arguments", [{"level": "loud"}, {"level": "INFO"}, {"format": "xml"}])
def test_what_cannot_be_configured_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"found '(loud|INFO|xml)', wanted"):
        configure_logging(**arguments)


def test_in_a_process_of_ottla_the_standard_librarys_logging_reaches_the_same_place_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger("shop.billing")
    logger.warning("before: %d", 1)
    capsys.readouterr()
    configure_program(level="info", format="auto")
    configure_program(level="info", format="auto")
    try:
        raise ConnectionError("the database is away")
    except ConnectionError:
        logger.exception("not billed: %s", "order 7")
    logger.info("below the level of libraries")

    [line] = lines_of(capsys)

    assert (line["event"], line["level"], line["logger"]) == ("not billed: order 7", "error", "shop.billing")
    assert line["exception"].endswith("ConnectionError: the database is away")


def test_structlog_that_writes_to_logging_is_no_circle(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    configure_program(level="info", format="auto")
    logging.getLogger().setLevel("INFO")
    seen = io.StringIO()
    own = logging.StreamHandler(seen)
    logging.getLogger().addHandler(own)

    log_event("topic_created", "info", {"topic": "orders"})
    logging.getLogger("shop").warning("twice?")

    assert seen.getvalue().count("topic_created") == 1
    assert seen.getvalue().count("twice?") == 1


def test_lines_inside_a_span_name_it(capsys: pytest.CaptureFixture[str]) -> None:
    configure_program(level="info", format="auto")
    with TracerProvider().get_tracer("test").start_as_current_span("checkout") as span:
        log_event("topic_created", "info", {"topic": "orders"})
        logging.getLogger("shop").warning("slow")
        own = add_trace_ids(None, "info", {"event": "mine"})
    log_event("topic_created", "info", {"topic": "orders"})

    inside, standard, outside = lines_of(capsys)

    context = span.get_span_context()
    ids = {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}
    assert inside.items() >= ids.items()
    assert standard.items() >= ids.items()
    assert own == {"event": "mine", **ids}
    assert "trace_id" not in outside


def test_a_log_that_cannot_be_written_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    log_event("topic_created", "info", {"topic": "orders"})

    def broken(*_: Any) -> Any:
        raise RuntimeError("no")

    structlog.configure(processors=[broken], cache_logger_on_first_use=False)
    log_event("topic_created", "info", {"topic": "orders"})


def test_events_that_repeat_are_limited_by_place(capsys: pytest.CaptureFixture[str]) -> None:
    fields = {"kind": "handler", "error": "E: no", "attempts": 1, "in_ms": 5, "group": "billing"}
    for offset in range(500):
        log_event("record_retried", "warning", {**fields, "partition": "orders-0", "offset": offset})
    log_event("record_retried", "warning", {**fields, "partition": "orders-1", "offset": 0})

    lines = lines_of(capsys)

    assert 20 <= len([line for line in lines if line["partition"] == "orders-0"]) <= 60  # the interval may pass
    assert len([line for line in lines if line["partition"] == "orders-1"]) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_logs_does_not_stop_the_child() -> None:
    (event, *_) = [name for name, row in log_events.EVENTS.items() if row.repeats]
    with log._lock:  # held by a thread that the child does not have
        child = os.fork()
        if child == 0:
            log.check_events_with(None)
            log_event(event, "info", {})
            os._exit(0)
    ended: list[int] = []

    def has_ended() -> bool:
        found, status = os.waitpid(child, os.WNOHANG)
        ended.extend([os.waitstatus_to_exitcode(status)] if found else [])
        return bool(found)

    try:
        wait_until(has_ended, timeout_s=30)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    assert ended == [0]
