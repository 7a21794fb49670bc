"""Find sentences in the pages of `docs/` that a reader has to read twice: part of `make docs`.

    python tools/prose.py [PAGE ...]

The patterns are the words of `plain_words.py` (which checks docstrings) and those below. Code, tables of figures and
generated pages are left out. docs/contributing/style.md says how to write instead.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from plain_words import WORDS

ROOT: Final = Path(__file__).resolve().parent.parent
SKIPPED: Final = (
    "docs/changes/",
    "docs/benchmark-results.md",
    "docs/contributing/style.md",
    "docs/glossary.md",
    "docs/reference/broker.md",
    "docs/reference/doctor.md",
    "docs/reference/handler-options.md",
    "docs/reference/protocol_support.md",
    "docs/reference/telemetry.md",
)
"""Pages with texts that programs write, and pages that quote bad words."""

PATTERNS: Final = {
    **{words: advice for words, advice in WORDS.items() if not words.startswith(("is at it", "(?<!dead"))},
    r"(?<!dead[ -])letters?(?!,| of)": "dead letter",
    r"takes in": "fetches, buffers, reads",
    r"gives? out|given out": "returns, delivers",
    r"reckons?": "estimates, takes into account",
    r"goes on|go on|went on": "continues",
    r"comes? again|came again": "is delivered again",
    r"is away|are away": "is unavailable, is down",
    r"makes? of": "builds from",
    r"looks? after": "maintains, monitors",
    r"the rest of it": "name it",
    r"stands? still": "stops, makes no progress",
    r"in one go|at one go": "in one call",
    r"what is there": "the records that are available",
    r"whoever": "name the party",
    r"(?-i:Of|With) what": "begin with the subject",
    r"is asked for|asks for it": "is requested",
    r"in lots of": "in batches of",
    r"has the same face": "has the same interface",
    r"as it stands": "unchanged",
    r"makes? itself": "say what it does",
    r"one sees|one gets": "you see, you get",
    r"does the rest": "say what it does",
}
_PATTERN: Final = re.compile(
    "|".join(rf"(?P<p{n}>\b(?:{pattern})\b)".replace(" ", r"\s+") for n, pattern in enumerate(PATTERNS)), re.IGNORECASE
)
_ADVICE: Final = tuple(PATTERNS.values())
_CODE: Final = re.compile(r"^ *```.*?^ *```|<!--.*?-->|`[^`\n]*`|\]\([^)\s]*\)", re.DOTALL | re.MULTILINE)


def problems_in(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, words and advice for each finding in the Markdown of a page."""
    prose = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    for found in _PATTERN.finditer(prose):
        number = int(str(found.lastgroup)[1:])
        yield prose.count("\n", 0, found.start()) + 1, " ".join(found[0].split()), _ADVICE[number]


def problems(*pages: Path) -> list[str]:
    """Return one line per finding in these pages; in all pages of `docs/` and the README if none is given."""
    chosen = pages or (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md")
    return [
        f"{page}:{line}: {words!r}: {advice}"
        for page in chosen
        if not any(skipped in page.as_posix() for skipped in SKIPPED)
        for line, words, advice in problems_in(page.read_text(encoding="utf-8"))
    ]


def main(arguments: Sequence[str]) -> int:
    found = problems(*map(Path, arguments))
    print("\n".join(found) or "no findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
