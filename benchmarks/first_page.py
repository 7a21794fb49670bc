"""Make `docs/benchmarks.md` and its two plots from the tables of `docs/benchmark-results.md`.

    python benchmarks/first_page.py

The page is for a reader who chooses a client: what was measured, five figures, two plots, and where Ottla is slower. A
figure stands in the tables alone: this page is made from them again when they change, and a test compares the two.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
MISSING = "not measured"
OURS, THEIRS = "#1f5fbf", "#8593a3"
BAR_WIDTH = 440

Bars = Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Tables:
    """The tables of the page with all results."""

    sections: dict[str, list[list[str]]]

    @classmethod
    def of(cls, page: str) -> Tables:
        """Return the rows of every section: title → rows of cells."""
        parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
        return cls({title: _rows(text) for title, text in zip(parts[1::2], parts[2::2], strict=True)})

    def cell(self, section: str, column: int, *first: str) -> str:
        """Return a cell of the row that begins with `first`, without its quartiles."""
        for row in self.sections.get(section, ()):
            if tuple(row[: len(first)]) == first and len(row) > column and row[column] not in ("", "–"):
                return row[column].partition(" [")[0]
        return MISSING

    def number(self, section: str, column: int, *first: str) -> float | None:
        """Return such a cell as a number; None where nothing was measured."""
        found = self.cell(section, column, *first)
        return None if found == MISSING else float(found.replace(",", ""))


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


PAGE = """\
# Benchmarks

<!-- Made by benchmarks/first_page.py from benchmark-results.md: change the figures there. -->

Ottla was measured beside confluent-kafka, aiokafka, kafka-python, FastStream and Quix Streams as clients, and beside
Apache Kafka, kfake and librdkafka's mock as brokers. The contenders of a table took turns in one run on one machine.
Compare the ratios: the absolute rates hold for a machine with two CPUs.
[All results](benchmark-results.md) has every table, the versions, the quartiles, and what each goal that is not met
would need.

## Five figures

| what was measured | result | tables |
|---|---|---|
{figures}

## Two plots

![thousands of JSON records a second that a handler takes, Ottla and its peers](benchmarks/consuming.svg)

![thousands of records a second that are produced and acknowledged, Ottla and its peers](benchmarks/producing.svg)

## Where Ottla is slower

A loop over a raw client that does nothing about failures, order or fairness is the upper bound:

| what | Ottla's rate, as a share of the raw client's |
|---|---|
{shares}

[Handlers of columns](benchmark-results.md#handlers-of-columns) are faster than a raw loop. Of {goals} goals, {missed}
are not met: [goals](benchmark-results.md#goals) lists them with the reason of each.

## Measure it yourself

```
make bench                      # everything; writes both pages
make bench ONLY=sdk QUICK=1     # a part, rough figures
```
"""


def page_of(tables: Tables) -> str:
    """Return the whole page."""
    goals = [row for row in tables.sections.get("Goals", ()) if len(row) > 4 and row[0] != "area"]
    return PAGE.format(
        figures="\n".join(
            f"| {what} | {result} | [{words}](benchmark-results.md#{anchor}) |"
            for what, result, words, anchor in _figures(tables)
        ),
        shares="\n".join(f"| {what} | {share} |" for what, share in _shares(tables)),
        goals=len(goals),
        missed=sum("not met" in row[4] for row in goals),
    )


def _figures(tables: Tables) -> Iterator[tuple[str, str, str, str]]:
    """Yield what was measured, the result, the words of the link and its anchor."""
    cell = tables.cell
    ratio = cell("Consuming", 1, "per record, JSON / quixstreams json")
    yield "a handler of single records, JSON, beside Quix Streams", _times(ratio), "consuming", "consuming"
    ratio = cell("Consuming", 1, "asyncio, JSON / faststream[kafka] json")
    yield "the same on asyncio, beside FastStream over aiokafka", _times(ratio), "consuming", "consuming"
    ours, theirs = (cell("Consuming", 2, "1 hot", who) for who in ("ottla", "confluent-kafka loop"))
    what = "a quiet partition beside a hot one: median wait of its records"
    yield what, f"Ottla {ours} s, a confluent-kafka loop {theirs} s", "consuming", "consuming"
    ratio = cell("Goals", 3, "counting once", "threads, exactly once: rate / Quix Streams, exactly once")
    what, anchor = "topic to topic, exactly once, beside Quix Streams", "from-topic-to-topic-exactly-once"
    yield what, _times(ratio), "exactly once", anchor
    section = "The broker beside other brokers"
    start, memory = "process start to ready, ms", "RSS empty, MB"
    ours, theirs = (f"{cell(section, at, start)} ms and {cell(section, at, memory)} MB" for at in (4, 7))
    what = "the embedded broker beside Apache Kafka: start, and memory when empty"
    yield what, f"Ottla {ours}, Apache Kafka {theirs}", "brokers", "the-broker-beside-other-brokers"


def _shares(tables: Tables) -> Iterator[tuple[str, str]]:
    cell = tables.cell
    loop = "confluent-kafka loop json"
    yield "`send`, beside confluent-kafka's `produce`", cell("Producing", 1, "send")
    yield "`send_many`, beside the same", cell("Producing", 1, "send_many")
    yield f"a handler of single records, JSON, beside a {loop[:-5]}", cell("Consuming", 1, f"per record, JSON / {loop}")
    yield "a batch handler, JSON, beside the same", cell("Consuming", 1, f"batch handler, JSON / {loop}")
    ratio = cell("Consuming", 1, "asyncio, JSON / aiokafka getmany json")
    yield "an asyncio handler, JSON, beside aiokafka's `getmany`", ratio


def _times(ratio: str) -> str:
    return ratio if ratio == MISSING else f"{float(ratio.replace(',', '')):.3g} × the rate"


def plots_of(tables: Tables) -> dict[str, str]:
    """Return the two plots, file name to SVG."""
    consuming = [
        ("Ottla", tables.number("Consuming", 3, "per record, JSON / quixstreams json")),
        ("Ottla, asyncio", tables.number("Consuming", 3, "asyncio, JSON / faststream[kafka] json")),
        ("Quix Streams", tables.number("Consuming", 4, "per record, JSON / quixstreams json")),
        ("FastStream, aiokafka", tables.number("Consuming", 4, "asyncio, JSON / faststream[kafka] json")),
        ("FastStream, confluent-kafka", tables.number("Consuming", 4, "per record, JSON / faststream[confluent] json")),
        ("raw confluent-kafka loop", tables.number("Consuming", 4, "per record, JSON / confluent-kafka loop json")),
        ("raw aiokafka loop", tables.number("Consuming", 4, "asyncio, JSON / aiokafka getmany json")),
    ]
    producing = [
        ("Ottla send_many", tables.number("Producing", 3, "send_many")),
        ("Ottla send", tables.number("Producing", 3, "send")),
        ("Ottla, asyncio send", tables.number("Producing", 3, "asyncio send")),
        ("raw confluent-kafka", tables.number("Producing", 3, "raw confluent-kafka")),
        ("raw aiokafka", tables.number("Producing", 3, "raw aiokafka")),
        ("raw kafka-python", tables.number("Producing", 3, "raw kafka-python")),
    ]
    return {
        "consuming.svg": bars("Handling JSON records one by one, k records/s", _measured(consuming)),
        "producing.svg": bars("Producing, each record acknowledged, k records/s", _measured(producing)),
    }


def _measured(found: Sequence[tuple[str, float | None]]) -> Bars:
    return [(label, value) for label, value in found if value is not None]


def bars(title: str, values: Bars) -> str:
    """Return horizontal bars as SVG, on a background of its own: readable on light and dark pages."""
    most = max((value for _, value in values), default=1.0)
    height = 56 + 30 * len(values)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        "<style>text { font: 14px 'DejaVu Sans', Helvetica, Arial, sans-serif; fill: #1b2733 }</style>",
        f'<rect x="1" y="1" width="758" height="{height - 2}" rx="10" fill="#fbfcfe" stroke="#b8c4d2"/>',
        f'<text x="20" y="30" font-weight="700">{escape(title)}</text>',
    ]
    for number, (label, value) in enumerate(values):
        y, width = 46 + 30 * number, max(2.0, BAR_WIDTH * value / most)
        colour = OURS if label.startswith("Ottla") else THEIRS
        lines.append(f'<text x="222" y="{y + 15}" text-anchor="end">{escape(label)}</text>')
        lines.append(f'<rect x="232" y="{y}" width="{width:.1f}" height="20" rx="3" fill="{colour}"/>')
        lines.append(f'<text x="{240 + width:.1f}" y="{y + 15}">{value:,.3g}</text>')
    return "\n".join([*lines, "</svg>", ""])


def write(docs: Path) -> None:
    """Write the page and the plots beside the page with all results."""
    tables = Tables.of((docs / "benchmark-results.md").read_text(encoding="utf-8"))
    (docs / "benchmarks.md").write_text(page_of(tables), encoding="utf-8")
    (docs / "benchmarks").mkdir(exist_ok=True)
    for name, svg in plots_of(tables).items():
        (docs / "benchmarks" / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=DOCS)
    write(parser.parse_args().docs)
