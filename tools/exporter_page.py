"""Write docs/reference/exporter.md: the metrics of `ottla exporter`, from the table in the code.

    python tools/exporter_page.py

A test fails when the page is behind.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from ottla.exporter.cluster_metrics_table import CLUSTER_METRICS
from ottla.exporter.prometheus_text import MOST_LABEL_CHARACTERS
from ottla.exporter.reading_loop import STALE_INTERVALS

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "exporter.md"

_TEXT = """\
# Metrics of `ottla exporter`

<!-- Written by tools/exporter_page.py from the table in src/ottla/exporter: change that, not this page. -->

`ottla exporter` serves these metrics of a cluster in Prometheus' text format. [Watch a
cluster](../how-to/watch-a-cluster.md) shows how to run it. The metrics of services are on [another
page](telemetry.md).

- Offsets are counted, not records: a log has gaps where records were compacted, and a marker where a transaction
  ended. In a partition with at most 100 offsets of lag whose group has stopped committing, the records are counted,
  if the exporter's user may read them.
- Lag in seconds is the age of the first record that is not committed. It is taken from where the log ended at
  earlier reads, and, for records from before the exporter's start, from the offsets that brokers name for a time
  (ListOffsets). While that is not known exactly it is the least that it can be, and
  `ottla_exporter_lag_seconds_at_least_partitions` counts the partitions.
- Counters begin at 0 with the exporter. What was lost before its start is not in them.
- A part that could not be read has no series, and `ottla_exporter_hidden` says how much of it is missing. Topics
  and groups that the user may not describe are not even named by Kafka: nothing counts them.
- If the cluster cannot be read, its last figures are served for {stale} intervals (`--every`), and then no longer.
- A label value of more than {characters} characters is cut and ends with a digest.
- **Connect rate**: how many connections a broker accepts in a second is in no metric here. No API of Kafka's protocol
  returns it; it is a JMX metric of the broker. [Watch a cluster](../how-to/watch-a-cluster.md#connect-rate) says which,
  and how the dashboard and an alert use it. Here are the connection quotas, how long a new connection takes, and
  whether it succeeds.

| metric | kind | labels | meaning |
|---|---|---|---|
{rows}

A metric marked with * is served only with `--partitions`.
"""


def render() -> str:
    rows = "\n".join(
        f"| `{row.name}`{' *' if row.is_of_partition else ''} | {row.kind} |"
        f" {', '.join(f'`{label}`' for label in row.labels)} | {row.meaning} |"
        for row in CLUSTER_METRICS.values()
    )
    return _TEXT.format(rows=rows, stale=STALE_INTERVALS, characters=MOST_LABEL_CHARACTERS)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
