"""Subject name strategies: under which name in the registry the schema of a topic's key or value is kept.

topic_name           orders-value             one schema per topic and part (Confluent's default)
record_name          com.shop.Order           one schema wherever the record goes
topic_record_name    orders-com.shop.Order    several record types in one topic, each with its own history
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ottla.errors import ConfigError
from ottla.serdes.base import SerdeContext

SubjectName: TypeAlias = Callable[[SerdeContext, str | None], str]
"""Returns the subject for the context and the record's full name (None for a schema without one)."""


def topic_name(ctx: SerdeContext, record: str | None) -> str:
    return f"{ctx.topic}-{ctx.part}"


def record_name(ctx: SerdeContext, record: str | None) -> str:
    return _named(ctx, record)


def topic_record_name(ctx: SerdeContext, record: str | None) -> str:
    return f"{ctx.topic}-{_named(ctx, record)}"


def _named(ctx: SerdeContext, record: str | None) -> str:
    if record is None:
        raise ConfigError(f"{ctx.topic} {ctx.part}: its schema has no record name, so only subjects.topic_name fits it")
    return record
