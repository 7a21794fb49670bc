"""What topics and their partitions are called; apart from records, for whatever only looks at a cluster."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ottla.showing import shown

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def topic_problem(name: object) -> str | None:
    """What is wrong with the name of a topic by Kafka's rule for them, or None. A broker would say no more than no."""
    if isinstance(name, str) and _TOPIC_NAME.fullmatch(name) and name not in (".", ".."):
        return None
    return f"topic: found {shown(name, 300)}, wanted a name of 1 to 249 letters, digits, '.', '_' or '-'"


def text_problem(text: str) -> str | None:
    """What is wrong with a text that a client of C is to be given, or None.

    Text with a lone surrogate (of `json.loads`, of a file name that is no UTF-8) cannot be encoded. A NUL ends a text
    of C: what is behind it would be lost.
    """
    if "\0" in text:
        return "found a NUL character, wanted text without"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return f"found {text[error.start]!r}, a lone surrogate, wanted text that is valid Unicode"
    return None


class TopicPartition(NamedTuple):
    """A partition of a topic. Prints as `topic-partition`, Kafka's own notation."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
