"""Write docs/reference/handler-options.md: which options of `App.handler` go together, found by declaring each pair.

    python tools/handler_options.py

What refuses a pair is the code itself, so the page says what it says. A test fails when the page is behind.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ottla import (
    App,
    AtMostOnce,
    ConfigError,
    Dead,
    DeadLetterBudget,
    ExactlyOnce,
    Inbox,
    Json,
    Priorities,
    Rate,
    RetryPolicy,
    RetryTopics,
)
from ottla.stores import Sqlite

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "handler-options.md"

_STORE: Final = Sqlite("billing.db")
_OF_APP: Final = "app"
_TOPICS: Final = "topics"

OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "batch=True": {"batch": True},
    "columns=True": {"columns": True},
    "to=": {"to": "results"},
    "max_batch=": {"max_batch": 100},
    "linger_ms=": {"linger_ms": 5},
    "max_records_per_turn=": {"max_records_per_turn": 100},
    'fair_by="bytes"': {"fair_by": "bytes"},
    "weight_of=": {"weight_of": lambda partition: 1},
    "max_rate=": {"max_rate": Rate(200)},
    "concurrency=": {"concurrency": 8},
    'ordering="key"': {"ordering": "key"},
    'ordering="unordered"': {"ordering": "unordered"},
    "retry=": {"retry": RetryPolicy()},
    "retry_topics=": {"retry_topics": RetryTopics()},
    "dead_letter_topic=": {"dead_letter_topic": "dead"},
    "budget=": {"budget": DeadLetterBudget()},
    "on_error=": {"on_error": {KeyError: Dead("unknown")}},
    "ttl_s=": {"ttl_s": 60},
    "on_expired=Dead(...)": {"on_expired": Dead("too old")},
    "expires_grace_s=": {"expires_grace_s": 1},
    "Priorities(...)": {_TOPICS: Priorities("orders", ["urgent", "normal"], default="normal")},
    "reserve=": {"reserve": {"urgent": 1}},
    "inbox=": {"inbox": Inbox(_STORE)},
    "offsets=": {"offsets": _STORE},
    "exactly_once=": {"exactly_once": ExactlyOnce()},
    "App(commit=AtMostOnce())": {_OF_APP: {"commit": AtMostOnce()}},
}
"""An option, as the page calls it, and a value of it."""

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "to=": ("columns=True",),
    "max_batch=": ("batch=True", "columns=True"),
    "linger_ms=": ("batch=True", "columns=True"),
    "on_expired=Dead(...)": ("dead_letter_topic=",),
    "reserve=": ("Priorities(...)",),
}
"""What an option needs beside it: one of these."""

_MORE: Final = {"reserve=": {"concurrency": 8}}
"""Of which one is kept."""

HEAD: Final = """\
# Options of a handler: which go together

<!-- Written by tools/handler_options.py, which declares every pair of options: change the code that refuses. -->

[`App.handler`](api/ottla.md) says what each option means. It goes together with every option that is not in the last
column of its row. What is refused is a `ConfigError` where the handler is declared.

| option | needs | not with |
|---|---|---|
"""

WHY: Final = """

## Why

| option | with | what the error says |
|---|---|---|
"""


def refusal(*names: str) -> str | None:
    """Why these options are refused together, whatever else they need is given; None where they go together."""
    why = None
    for beside in itertools.product(*(NEEDS.get(name, ("",)) for name in names)):
        why = declared([*names, *filter(None, beside)])
        if why is None:
            return None
    return why


def declared(names: list[str]) -> str | None:
    """Why a handler with exactly these options is refused; None where it is not."""
    options: dict[str, Any] = {"value": Json()}
    for name in dict.fromkeys(names):
        options |= {**_MORE.get(name, {}), **OPTIONS[name]}
    app = App("billing", **options.pop(_OF_APP, {}))
    topics = options.pop(_TOPICS, "orders")
    try:
        app.handler(topics, **options)(lambda order: None)
    except ConfigError as error:
        return str(error)
    return None


def rows() -> Iterator[str]:
    """A row of the table for each option."""
    for name in OPTIONS:
        refused = [other for other in OPTIONS if other != name and refusal(name, other) is not None]
        needs = " or ".join(f"`{other}`" for other in NEEDS.get(name, ()))
        yield f"| `{name}` | {needs or '–'} | {', '.join(f'`{other}`' for other in refused) or '–'} |"


def reasons() -> Iterator[str]:
    """A row of the second table for each pair that is refused."""
    for one, other in itertools.combinations(OPTIONS, 2):
        why = refusal(one, other)
        if why is not None:
            yield f"| `{one}` | `{other}` | {why.removeprefix('<lambda>: ')} |"


def render() -> str:
    """The page."""
    return HEAD + "\n".join(rows()) + WHY + "\n".join(reasons()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
