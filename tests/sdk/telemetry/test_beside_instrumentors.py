"""Clients that an instrumentor of OpenTelemetry patched: no record ends a service, and contexts travel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SERVICE = Path(__file__).with_name("instrumented_service.py")
SYNC = Path(__file__).parents[3] / "src" / "ottla" / "sync"


@pytest.fixture(scope="module", params=["threads", "asyncio"])
def trace_and_headers(request: pytest.FixtureRequest) -> tuple[str, dict[str, list[list[str]]]]:
    """The trace the records were sent in, and the headers of each record that was handled, by its value."""
    done = subprocess.run(
        [sys.executable, str(SERVICE), request.param], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    trace, headers = map(json.loads, done.stdout.splitlines())
    return trace, headers


@pytest.mark.representative("asyncio-")
@pytest.mark.parametrize("way", ["", "many: "])
def test_every_record_is_handled_whatever_is_in_its_headers(
    trace_and_headers: tuple[str, dict[str, list[list[str]]]], way: str
) -> None:
    _, headers = trace_and_headers

    assert headers[f"{way}bad context"] == [["traceparent", "\xff\xfe"]]
    assert f"{way}bad key" in headers


@pytest.mark.parametrize("way", ["", "many: "])
def test_what_is_sent_in_a_span_carries_its_context(
    trace_and_headers: tuple[str, dict[str, list[list[str]]]], way: str
) -> None:
    trace, headers = trace_and_headers
    [[name, value]] = headers[f"{way}in a span"]

    assert name == "traceparent"
    assert value.split("-")[1] == trace


@pytest.mark.parametrize("way", ["", "many: "])
def test_a_context_that_the_caller_gave_stays(
    trace_and_headers: tuple[str, dict[str, list[list[str]]]], way: str
) -> None:
    _, headers = trace_and_headers

    assert headers[f"{way}own context"] == [
        ["traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
        ["shop", "7"],
    ]


def test_no_client_is_imported_under_a_name_that_an_instrumentor_replaces() -> None:
    for file in SYNC.glob("**/*.py"):
        for names in re.findall(r"from confluent_kafka import \(?([^)\n]*(?:\n    [^)]*)?)", file.read_text()):
            assert not {"Consumer", "Producer"} & set(re.findall(r"\w+", names.partition(" as ")[0])), file
