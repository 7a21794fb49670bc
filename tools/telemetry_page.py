"""Write docs/reference/telemetry.md from the tables in src/ottla/telemetry.

    python tools/telemetry_page.py

A test fails when the page is behind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from ottla.telemetry.logs.log_events import BURST, COMMON_FIELDS, GROUPS, INTERVAL_MS, LogEvent
from ottla.telemetry.metrics.metrics_table import METRICS, Metric
from ottla.telemetry.traces.conventions import ATTRIBUTES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "telemetry.md"

HEAD = """\
# Telemetry: spans, metrics and log events of Ottla

<!-- Written by tools/telemetry_page.py from the tables in src/ottla/telemetry: change those, not this page. -->
"""

LOGS = """
## Log events

Events go to structlog if the application configured it, else to the loggers `ottla.…` of the standard library's
`logging`, and to stderr if that has no handlers: one line of JSON each, or readable lines on a terminal.
[Logs of a service](../how-to/logging.md) shows how to set up each, and tests.

Events never hold keys, values or headers of records. Errors that a handler raised are logged with their message.

| field | of every event |
|---|---|
{common}

Events marked "limited" are logged at most {burst} times per group and partition, topic or callback in {interval_s}
seconds. The next line has the number of suppressed events in `held_back`. Metrics count all of them.
"""


SPANS = """
## Spans

Ottla makes spans if the process has an OpenTelemetry tracer provider. Names follow version 1.45 of the messaging
conventions, which are in development. `OTEL_SEMCONV_STABILITY_OPT_IN=messaging/dup` adds the names of 1.44.

| span | kind | of what | parent |
|---|---|---|---|
| `send <topic>` | producer | one record, or one `send_many` | the current span, or the headers' |
| `process <topic>` | consumer | one delivery of a record | its producer; a retry links to the one before |
| `process <topic>` | consumer | one delivery of a batch | none; links to the producers, 128 at most |
| `receive <topic>` | client | records that a pulled consumer took | the current span; links to the producers |

The decision about a failed record is an event of its span, with the name of the log event.

| attribute | meaning |
|---|---|
{attributes}
"""


RENAMED = """
## Names before 0.2

These events and metrics were renamed. Their old names work until 0.3:

- Lines of a renamed event have its old name in `event_before`. There is one line per event.
- `ottla.consumer.events`, and the `event` of `Hooks`, count a renamed event under both names. A sum over all values
  of `ottla.event` counts it twice; a rule for one name does not.
- `ottla.consumer.failures`, the `decided` of `Hooks` and events of spans have the new name only: failures are
  often summed over their events, and would be counted twice.
- A renamed metric has an instrument of each name, with the same values.

| kind | before | now |
|---|---|---|
{rows}
"""

METRICS_HEAD = """
## Metrics

Ottla records metrics if the process has an OpenTelemetry meter provider. An application's own `Hooks` get the same
calls. The last column has the metric's name in Prometheus. A histogram gets the suffixes `_bucket`, `_sum` and
`_count`. Dots in labels become underscores.

| metric | kind, unit | meaning | labels | in Prometheus |
|---|---|---|---|---|
"""


def render() -> str:
    return HEAD + _spans() + _metrics() + _logs() + _renamed()


def _renamed() -> str:
    rows = [("metric", row.before, row.name) for row in METRICS.values() if row.before]
    rows += [("event", row.before, row.name) for group in GROUPS.values() for row in group if row.before]
    return RENAMED.format(rows="\n".join(f"| {kind} | `{before}` | `{now}` |" for kind, before, now in rows))


def _metrics() -> str:
    return METRICS_HEAD + "".join(map(_metric, METRICS.values()))


def _metric(row: Metric) -> str:
    labels = ", ".join(_code(row.attributes))
    return f"| `{row.name}` | {row.kind}, `{row.unit}` | {row.meaning} | {labels} | `{row.prometheus_name}` |\n"


def _spans() -> str:
    return SPANS.format(attributes="\n".join(f"| `{name}` | {meaning} |" for name, meaning in ATTRIBUTES.items()))


def _logs() -> str:
    common = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in COMMON_FIELDS.items())
    page = LOGS.format(common=common, burst=BURST, interval_s=INTERVAL_MS // 1_000)
    for title, rows in GROUPS.items():
        page += f"\n### {title}\n\n| event | level | meaning | fields |\n|---|---|---|---|\n"
        page += "".join(_event(row) for row in rows)
    return page


def _event(row: LogEvent) -> str:
    levels = ", ".join(row.levels) + (" (limited)" if row.repeats else "")
    fields = ", ".join([*_code(row.fields), *(f"{name}?" for name in _code(row.optional))])
    return f"| `{row.name}` | {levels} | {row.meaning} | {fields} |\n"


def _code(names: Iterable[str]) -> list[str]:
    return [f"`{name}`" for name in names]


if __name__ == "__main__":
    PAGE.write_text(render())
    sys.stdout.write(f"wrote {PAGE}\n")
