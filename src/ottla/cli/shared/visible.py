"""Text from records, brokers and files as it may be shown on a terminal.

A record may hold escape sequences that move the cursor, change colours, rename the window or write to the clipboard,
and characters that reverse the direction of text. All of them are shown escaped (`\\x1b`), never sent to a terminal.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# C0 and C1 controls, DEL, line and paragraph separators, marks and overrides of direction, surrogates.
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """Return the text on one line, without anything that a terminal obeys. Unchanged if it holds nothing of the
    kind."""
    if text.isprintable():  # nothing of the kind is: nearly every text, in a tenth of the time of a search
        return text
    return _UNSAFE.sub(_escaped, text)


def width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
