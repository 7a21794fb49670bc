"""Write the picture of the README: what becomes of records when something fails, elsewhere and with Ottla.

    python tools/failure_picture.py

Each row is a row of docs/comparison.md: `script` shows what the other library does, and `quote` is what the page says
of it. The picture has its own background, so it can be read on light and dark pages. It loads nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "failures.svg"

KINDS = {
    "handled": "#2e7d32",
    "dead": "#b26a00",
    "kept": "#5b6b7f",
    "lost": "#c62828",
    "twice": "#c62828",
}
"""What becomes of a record, and its colour."""
LEGEND = {
    "handled": "handled",
    "dead": "dead letter: kept, with the reason",
    "kept": "kept: not committed",
    "lost": "lost",
    "twice": "written twice",
}
WIDTH, TOP, HEIGHT = 940, 62, 66
COLUMNS = (24, 284, 620)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One failure: what becomes of ten records (or of as many as the script sends, in proportion) on both sides."""

    what: tuple[str, str]
    script: str
    quote: str
    peer: str
    theirs: tuple[str, ...]
    their_words: str
    ours: tuple[str, ...]
    our_words: str


ROWS = (
    Row(
        what=("The handler raises", "for 5 of 10 records"),
        script="faststream_default_ack_policy.py",
        quote="5 handled, 10 committed",
        peer="FastStream",
        theirs=("handled",) * 5 + ("lost",) * 5,
        their_words="10 committed, 5 never handled",
        ours=("handled",) * 5 + ("dead",) * 5,
        our_words="retried with backoff, then dead letters",
    ),
    Row(
        what=("1 of 10 values", "is not JSON"),
        script="faststream_value_not_json.py",
        quote="9 handled, 10 committed; the tenth is lost",
        peer="FastStream",
        theirs=("handled",) * 9 + ("lost",),
        their_words="10 committed, 1 lost",
        ours=("handled",) * 9 + ("dead",),
        our_words="a dead letter with its original bytes",
    ),
    Row(
        what=("The dead letter topic", "refuses 1 of 8 dead letters"),
        script="arroyo_dead_letter_write_fails.py",
        quote="7 are in the dead letter topic, 8 of 8 are committed",
        peer="sentry-arroyo",
        theirs=("dead",) * 7 + ("lost",),
        their_words="8 committed, 1 lost",
        ours=("dead",) * 7 + ("kept",),
        our_words="the partition stops; the record stays",
    ),
    Row(
        what=("Results of 2,000 records go", "to a topic that is missing"),
        script="quix_send_not_flushed.py",
        quote="2,000 of 2,000 records committed, no result, no error",
        peer="Quix Streams",
        theirs=("lost",) * 10,
        their_words="2,000 committed, no result",
        ours=("dead",) * 10,
        our_words="the send is retried, then a dead letter",
    ),
    Row(
        what=("The process is killed while", "it writes 400 database rows"),
        script="quix_killed_beside_a_database.py",
        quote="7 rows are there twice",
        peer="Quix Streams",
        theirs=("handled",) * 9 + ("twice",),
        their_words="7 rows written twice",
        ours=("handled",) * 10,
        our_words="row and offset in one transaction",
    ),
)


def draw() -> str:
    """Return the picture as SVG."""
    height = TOP + HEIGHT * len(ROWS) + 50
    title = "What becomes of records when something fails, in another library and with Ottla"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">',
            f"<title>{title}</title>",
            "<style>text { font-family: -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif; }",
            ".head { font-size: 15px; font-weight: 700; fill: #1b2733 } .what { font-size: 15px; fill: #1b2733 }",
            ".words { font-size: 13px; fill: #3c4a5a }</style>",
            f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="10" fill="#fbfcfe" stroke="#b8c4d2"/>',
            *(
                f'<text class="head" x="{x}" y="38">{head}</text>'
                for x, head in zip(COLUMNS, ("When this happens", "elsewhere", "with Ottla"), strict=True)
            ),
            *(line for number, row in enumerate(ROWS) for line in _row(row, TOP + HEIGHT * number)),
            *_legend(TOP + HEIGHT * len(ROWS) + 12),
            "</svg>",
            "",
        ]
    )


def _row(row: Row, y: int) -> Iterator[str]:
    left, middle, right = COLUMNS
    yield f'<path d="M{left} {y - 8}H{WIDTH - left}" stroke="#dbe3ec"/>'
    for number, line in enumerate(row.what):
        yield f'<text class="what" x="{left}" y="{y + 16 + 20 * number}">{escape(line)}</text>'
    yield from _records(row.theirs, middle, y + 4)
    yield f'<text class="words" x="{middle}" y="{y + 44}">{escape(f"{row.peer}: {row.their_words}")}</text>'
    yield from _records(row.ours, right, y + 4)
    yield f'<text class="words" x="{right}" y="{y + 44}">{escape(row.our_words)}</text>'


def _records(kinds: tuple[str, ...], x: int, y: int) -> Iterator[str]:
    for number, kind in enumerate(kinds):
        yield from _record(kind, x + 24 * number, y)


def _record(kind: str, x: int, y: int) -> Iterator[str]:
    """A square. Colours are not all: what is lost is empty with a cross, kept an empty frame, written twice two."""
    colour, size = KINDS[kind], 18
    if kind == "twice":
        yield f'<rect x="{x + 5}" y="{y - 4}" width="{size}" height="{size}" rx="3" fill="#fbfcfe" stroke="{colour}"/>'
    is_empty = kind in ("lost", "kept")
    fill = "#ffffff" if is_empty else colour
    yield (
        f'<rect x="{x + 1}" y="{y + 1}" width="{size - 2}" height="{size - 2}" rx="3" fill="{fill}" '
        f'stroke="{colour}" stroke-width="2"/>'
    )
    if kind == "lost":
        yield f'<path d="M{x + 5} {y + 5}l8 8m0-8l-8 8" stroke="{colour}" stroke-width="2"/>'
    if kind == "dead":
        yield f'<path d="M{x + 4} {y + 6}l5 4l5-4" stroke="#ffffff" stroke-width="1.6" fill="none"/>'


def _legend(y: int) -> Iterator[str]:
    x = COLUMNS[0]
    for kind, words in LEGEND.items():
        yield from _record(kind, x, y)
        yield f'<text class="words" x="{x + 28}" y="{y + 14}">{escape(words)}</text>'
        x += 52 + int(6.4 * len(words))


if __name__ == "__main__":
    TARGET.write_text(draw(), encoding="utf-8")
