"""The Python in the how-to pages runs, page by page, from top to bottom."""

from __future__ import annotations

import logging
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from ottla.telemetry import log_event
from ottla.telemetry.logs import log_sink
from ottla.telemetry.logs.log_events import EVENTS
from ottla.telemetry.logs.log_records import logger_of
from ottla.testing import Kafka

FAILED = {"group": "billing", "partition": "orders-0", "kind": "failed", "error": "E: no", "attempts": 1}
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def blocks(page: str, fence: str = "```python") -> str:
    """The page's Python as one program whose line numbers are the page's, so that a traceback points into it."""
    lines, is_code = [], False
    for line in (HOW_TO / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            is_code = line == fence
            lines.append("")
        else:
            lines.append(line if is_code else "")
    return "\n".join(lines)


def run_page(page: str, fence: str = "```python") -> dict[str, object]:
    program = blocks(page, fence)
    assert program.strip()
    module = types.ModuleType("how_to_page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
        exec(compile(program, str(HOW_TO / page), "exec", dont_inherit=True), vars(module))
    return vars(module)


def test_the_serdes_page_is_true() -> None:
    run_page("serdes.md")


def test_the_testing_page_is_true(
    kafka: Kafka, make_topic: object, run_app: object, make_secure_kafka: object, make_cluster: object
) -> None:
    names = run_page("testing.md")
    test, secure_test = names["test_orders_are_billed"], names["test_billing_logs_in"]
    assert callable(test)
    test(kafka, make_topic, run_app)
    assert callable(secure_test)
    secure_test(make_secure_kafka)
    names["test_the_cluster_has_what_billing_needs"](make_cluster)  # type: ignore[operator]


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    loggers = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    before = [(each, each.level, list(each.handlers)) for each in [logging.root, *loggers]]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers
    log_sink._is_chosen, log_sink._format = False, "auto"


@pytest.mark.usefixtures("logging_as_it_was")
def test_the_logging_page_is_true(
    kafka: Kafka, make_topic: object, run_app: object, caplog: pytest.LogCaptureFixture
) -> None:
    names = run_page("logging.md")
    loggers = {name for name in logging.root.manager.loggerDict if name.startswith("ottla.")}
    page = (HOW_TO / "logging.md").read_text(encoding="utf-8")
    assert {logger_of(event).name for event in EVENTS} == set(re.findall(r"`(ottla\.[a-z_]+)`", page)) & loggers
    structlog.reset_defaults()
    logging.root.addHandler(caplog.handler)
    test = names["test_an_order_of_nobody_is_logged"]
    assert callable(test)
    test(caplog, kafka, make_topic, run_app)


@pytest.mark.usefixtures("logging_as_it_was")
def test_what_the_logging_page_says_of_sentry_is_true() -> None:
    sentry = pytest.importorskip("sentry_sdk")
    sent: list[dict[str, Any]] = []
    run_page("logging.md", '```python title="with Sentry"')
    sentry.get_client().transport.capture_envelope = lambda envelope: sent.append(envelope.get_event())

    for offset in range(2):
        log_event("record_retried", "warning", {**FAILED, "offset": offset, "in_ms": 5})

    assert {each["logentry"]["message"] for each in sent} == {"record_retried %s"}
    assert [each["extra"]["offset"] for each in sent] == [0, 1]


@pytest.mark.parametrize("page", ["testing.md"])
def test_every_fixture_in_the_table_exists(page: str) -> None:
    plugin = (HOW_TO.parents[1] / "src" / "ottla" / "testing" / "plugin.py").read_text(encoding="utf-8")
    fixtures = set(re.findall(r"@pytest\.fixture.*\ndef ([a-z]\w+)", plugin))
    table = (HOW_TO / page).read_text(encoding="utf-8").split("| fixture |")[1].split("\n\n")[0]
    documented = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert documented == fixtures
