"""A library logs where its host logs: events are records of `logging`, and the root logger is the program's."""

from __future__ import annotations

import io
import json
import logging
import logging.config
import logging.handlers
import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from ottla import configure_logging
from ottla.telemetry import log_event
from ottla.telemetry.logs import log_sink
from ottla.telemetry.logs.log_records import Fields
from ottla.telemetry.logs.log_sink import configure_program

FIELDS = {"group": "billing", "partition": "orders-0", "offset": 42, "kind": "failed", "error": "E: no", "attempts": 1}


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    others = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    before = [(each, each.level, list(each.handlers), list(each.filters)) for each in [logging.root, *others]]
    yield
    for logger, level, handlers, filters in before:
        logger.setLevel(level)
        logger.handlers[:], logger.filters[:] = handlers, filters
        logger.disabled = False
    logging.disable(logging.NOTSET)
    log_sink._format, log_sink._is_chosen = "auto", False


def dead_letter(**more: object) -> None:
    log_event("record_dead_lettered", "warning", {**FIELDS, "dead_letter_topic": "dead", **more})


def host(level: str = "INFO", **options: Any) -> io.StringIO:
    """A program that configures `logging` by dictConfig."""
    output = io.StringIO()
    logging.config.dictConfig(
        {
            "version": 1,
            "formatters": {"line": {"format": "%(levelname)s %(name)s %(message)s"}},
            "handlers": {"own": {"class": "logging.StreamHandler", "stream": output, "formatter": "line"}},
            "root": {"handlers": ["own"], "level": level},
            **options,
        }
    )
    return output


def test_caplog_sees_the_event_its_fields_and_its_text(caplog: pytest.LogCaptureFixture) -> None:
    dead_letter()

    [record] = caplog.records
    assert record.name == "ottla.records"
    assert record.levelno == logging.WARNING
    assert record.event == "record_dead_lettered"  # type: ignore[attr-defined]
    assert {name: getattr(record, name) for name in FIELDS} == FIELDS
    assert record.getMessage() == (
        "record_dead_lettered group=billing partition=orders-0 offset=42 kind=failed "
        'error="E: no" attempts=1 dead_letter_topic=dead'
    )
    assert record.pathname == __file__
    assert record.funcName == "dead_letter"


def test_caplog_sees_what_is_logged_below_warning_at_the_level_that_it_asks_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, logger="ottla"):
        log_event("topic_created", "info", {"topic": "orders"})
    with caplog.at_level(logging.ERROR):
        log_event("topic_created", "info", {"topic": "returns"})

    assert [record.topic for record in caplog.records] == ["orders"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("keeps", [True, False])
def test_dict_config_sees_events_and_nothing_else_is_written(capsys: pytest.CaptureFixture[str], keeps: bool) -> None:
    dead_letter()
    capsys.readouterr()
    output = host(disable_existing_loggers=not keeps)

    dead_letter()
    log_event("topic_created", "info", {"topic": "orders"})

    assert output.getvalue().splitlines()[1:] == ["INFO ottla.services topic_created topic=orders"]
    assert output.getvalue().startswith("WARNING ottla.records record_dead_lettered group=billing ")
    assert capsys.readouterr().err == ""


def test_levels_and_filters_of_the_host_hold() -> None:
    output = host("WARNING", loggers={"ottla.records": {"level": "ERROR"}})

    dead_letter()
    log_event("topic_created", "info", {"topic": "orders"})
    logging.getLogger("ottla.services").addFilter(lambda record: record.topic != "orders")  # type: ignore[attr-defined]
    log_event("topic_differs", "warning", {"topic": "orders", "found_partitions": 1, "declared_partitions": 2})
    log_event("topic_differs", "warning", {"topic": "returns", "found_partitions": 1, "declared_partitions": 2})

    assert [line.split()[2:4] for line in output.getvalue().splitlines()] == [["topic_differs", "topic=returns"]]


@pytest.mark.parametrize("silence", ["NullHandler", "level", "disable"])
def test_a_host_may_silence_it(capsys: pytest.CaptureFixture[str], silence: str) -> None:
    ottla = logging.getLogger("ottla")
    match silence:
        case "NullHandler":
            ottla.addHandler(logging.NullHandler())
        case "level":
            ottla.setLevel(logging.CRITICAL)
        case _:
            logging.disable(logging.CRITICAL)
    dead_letter()

    assert capsys.readouterr().err == ""


def test_configure_logging_leaves_the_root_logger_alone(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))

    configure_logging(level="debug", format="json")
    logging.getLogger("shop").warning("of the host")

    assert (root.level, root.handlers) == before
    assert "of the host" not in capsys.readouterr().err


def test_what_configure_logging_asked_for_is_written_beside_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    output = host("WARNING")
    configure_logging(level="info", format="json")

    log_event("topic_created", "info", {"topic": "orders"})

    assert json.loads(capsys.readouterr().err)["topic"] == "orders"
    assert "topic_created topic=orders" in output.getvalue()


def test_a_service_under_ottla_run_that_configures_logging_takes_over(capsys: pytest.CaptureFixture[str]) -> None:
    configure_program(level="info", format="json")
    dead_letter()
    logging.getLogger("shop").warning("slow")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["event"], first["offset"]) == ("record_dead_lettered", 42)
    assert (second["event"], second["logger"]) == ("slow", "shop")

    output = host()
    dead_letter()

    assert output.getvalue().count("record_dead_lettered") == 1
    assert capsys.readouterr().err == ""


def test_structlog_that_is_configured_gets_events_and_logging_does_not(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[dict[str, Any]] = []

    def keep(_: Any, __: str, event: Any) -> Any:
        seen.append(dict(event))
        raise structlog.DropEvent

    structlog.configure(processors=[keep], cache_logger_on_first_use=False)
    dead_letter()

    assert [each["offset"] for each in seen] == [42]
    assert not caplog.records


def test_an_error_has_its_traceback(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    output = host()
    try:
        raise ConnectionError("the database is away")
    except ConnectionError as error:
        log_event("stop_hook_failed", "error", {"app": "billing", "hook": "close", "error": "no", "exc_info": error})

    assert output.getvalue().rstrip().endswith("ConnectionError: the database is away")
    assert "Traceback (most recent call last)" in output.getvalue()


def test_messages_are_one_per_event_until_they_are_formatted(caplog: pytest.LogCaptureFixture) -> None:
    dead_letter()
    dead_letter(offset=43)

    assert {record.msg for record in caplog.records} == {"record_dead_lettered %s"}


def test_no_field_breaks_the_line_or_passes_for_another() -> None:
    text = str(Fields({"a": "x\ny=1 z", "b": 1.5, "c": ["orders-0"], "d": None, "e": "\x1b[31m", "f": "100%s"}))

    assert text == r'a="x\ny=1 z" b=1.5 c=["orders-0"] d=null e="\u001b[31m" f="100%s"'


def test_records_pass_a_queue(caplog: pytest.LogCaptureFixture) -> None:
    passed: queue.SimpleQueue[Any] = queue.SimpleQueue()
    logging.getLogger().addHandler(logging.handlers.QueueHandler(passed))

    dead_letter()

    assert "offset=42" in passed.get_nowait().getMessage()


def test_a_handler_that_logs_by_ottla_does_not_call_itself() -> None:
    class ToKafka(logging.Handler):
        count = 0

        def emit(self, record: logging.LogRecord) -> None:
            self.count += 1
            dead_letter()

    handler = ToKafka()
    logging.getLogger().addHandler(handler)
    dead_letter()

    assert handler.count == 1


UNCONFIGURED = """
import logging, sys
from ottla.telemetry import log_event
log_event("topic_created", "info", {"topic": "orders"})
log_event("topic_created", "debug", {"topic": "quiet"})
logging.getLogger("ottla.of_mine").warning("from a logger of the program")
print("structlog" in sys.modules)
"""


def test_a_program_that_configures_nothing_gets_lines_on_stderr(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCONFIGURED], capture_output=True, text=True, cwd=tmp_path, check=True
    )

    event, own = done.stderr.splitlines()
    assert json.loads(event)["topic"] == "orders"
    assert own == "from a logger of the program"
    assert done.stdout == "False\n"
