"""Defaults that follow the user's choices, so that setting one value needs no knowledge of those that depend on it.

Only defaults and profiles are moved. Two values that the user chose and that do not fit are refused (`checks`).
"""

from __future__ import annotations

from math import ceil
from typing import Any

from ottla.config.defaults import Default
from ottla.config.settings import Settings

_TRANSACTION_MS = 60_000
"""The clients' own default of transaction.timeout.ms."""


def fit_consumer(settings: Settings) -> Settings:
    """Return a consumer's settings, with the defaults that depend on others fitted to these."""
    if settings.get("group.protocol") != "consumer":
        session = settings["session.timeout.ms"]
        why = f"session.timeout.ms={session}"
        settings = _at_most(
            settings, "heartbeat.interval.ms", max(1, session // 3), f"{why}: three heartbeats fit into one session"
        )
        settings = _at_least(settings, "max.poll.interval.ms", session, f"{why}: it is at least as long as a session")
    fetched = settings["max.partition.fetch.bytes"]
    return _at_least(
        settings,
        "fetch.max.bytes",
        fetched,
        f"max.partition.fetch.bytes={fetched}: a response has room for that of one partition",
    )


def fit_producer(settings: Settings) -> Settings:
    """Return the same of a producer. With a `transactional.id` a record must be given up before its transaction is."""
    largest = settings["max.request.size"]
    why = f"max.request.size={largest}"
    settings = _at_most(settings, "batch.size", largest, f"{why}: a batch must fit into a request")
    settings = _at_least(settings, "buffer.memory", largest, f"{why}: the largest record must fit into it")
    if settings.get("transactional.id") is not None:
        settings = _fit_transaction(settings)
    least = _one_request_ms(settings)
    return _at_least(
        settings,
        "delivery.timeout.ms",
        least,
        "linger.ms + request.timeout.ms: a record is not given up before its first request is",
    )


def _fit_transaction(settings: Settings) -> Settings:
    if settings.was_chosen("transaction.timeout.ms"):
        timeout = settings["transaction.timeout.ms"]
        for_request = max(1, timeout // 2 - ceil(settings["linger.ms"]))
        why = f"transaction.timeout.ms={timeout}: a request that is lost is sent again within it"
        settings = _at_most(settings, "request.timeout.ms", for_request, why)
    elif _one_request_ms(settings) > _TRANSACTION_MS:
        timeout = _one_request_ms(settings)
        why = "linger.ms + request.timeout.ms: a record that is not delivered by then aborts its transaction"
        settings = settings.with_defaults(Default("transaction.timeout.ms", timeout, why))
    else:
        timeout = settings.get("transaction.timeout.ms", _TRANSACTION_MS)
    why = "transaction.timeout.ms: a record that is not delivered by then belongs to an aborted transaction"
    return _at_most(settings, "delivery.timeout.ms", timeout, why)


def _one_request_ms(settings: Settings) -> int:
    least: int = ceil(settings["linger.ms"] + settings["request.timeout.ms"])
    return least


def _at_least(settings: Settings, name: str, least: Any, why: str) -> Settings:
    return settings if settings[name] >= least else settings.with_defaults(Default(name, least, why))


def _at_most(settings: Settings, name: str, most: Any, why: str) -> Settings:
    return settings if settings[name] <= most else settings.with_defaults(Default(name, most, why))
