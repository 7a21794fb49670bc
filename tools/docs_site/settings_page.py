"""Reference of the clients' settings, made from the tables that resolve them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.config import ALIASES, PROFILES, SPECS, Asyncio, Default, Role, known_names
from ottla.config.catalog import ASYNCIO_ONLY
from ottla.config.defaults import (
    COMMON_DEFAULTS,
    CONSUMER_DEFAULTS,
    NEXT_GENERATION_GROUP_DEFAULTS,
    PRODUCER_DEFAULTS,
    TRANSACTION_DEFAULTS,
)

_HEAD = """\
# Settings of clients

Names are Kafka's. A setting comes from, in this order: the `settings=` of the code, the environment
(`OTTLA_PRODUCER_LINGER_MS=50`, `OTTLA_CONSUMER_...`, `OTTLA_CLIENT_...` for all), a profile, Ottla's defaults below,
the client's own default. `ottla config explain --for producer` shows what a client would run with, and where each value
came from. The settings of the embedded broker are in [its reference](broker.md#settings).
"""

_GROUPS = (
    ("Ottla's defaults of every client", COMMON_DEFAULTS),
    ("Ottla's defaults of producers", PRODUCER_DEFAULTS),
    ("Ottla's defaults of transactional producers", TRANSACTION_DEFAULTS),
    ("Ottla's defaults of consumers", CONSUMER_DEFAULTS),
    ("Ottla's defaults of consumers with `group.protocol=consumer`", NEXT_GENERATION_GROUP_DEFAULTS),
)


def settings_pages() -> dict[str, str]:
    """Path in the documentation: text."""
    page = _HEAD
    for title, defaults in _GROUPS:
        page += f"\n## {title}\n\n{_table(defaults)}"
    page += '\n## Profiles of producers\n\n`Producer(profile="low_latency")` replaces some defaults at once.\n'
    for name, defaults in PROFILES.items():
        page += f"\n### `{name}`\n\n{_table(defaults)}"
    return {"reference/settings.md": page + _catalogue()}


def _table(defaults: Mapping[str, Default]) -> str:
    rows = "".join(f"| `{each.name}` | `{shown(each.value)}` | {_cell(each.why)} |\n" for each in defaults.values())
    return f"| setting | value | why |\n|---|---|---|\n{rows}"


def _catalogue() -> str:
    page = (
        "\n## All settings\n\nA name that is not listed is refused, with the nearest one that is. "
        '"threads" is confluent-kafka, "asyncio" is aiokafka.\n'
    )
    for role in (Role.PRODUCER, Role.CONSUMER):
        rows = "".join(map(_row, sorted(known_names(role) - ALIASES.keys())))
        page += f"\n### Of a {role.value}\n\n| setting | type | for | also called |\n|---|---|---|---|\n{rows}"
    return page


def _row(name: str) -> str:
    spec = SPECS.get(name)
    if spec is None:
        return f"| `{name}` | | {'asyncio' if name in ASYNCIO_ONLY else 'threads'} | |\n"
    kind = _cell(" | ".join(spec.choices) or spec.kind.value)
    shells = "threads" if spec.aiokafka is Asyncio.MISSING else "threads, asyncio"
    also = ", ".join(f"`{alias}`" for alias, of in sorted(ALIASES.items()) if of == name)
    return f"| `{name}` | {kind} | {shells} | {also} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def shown(value: Any) -> str:
    """A value as a settings file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
