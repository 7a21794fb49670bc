"""Declaration of a handler whose results and offsets are one Kafka transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.config.arguments import names_arguments
from ottla.consumer.partitions.plan import DEFAULT_TURN_RECORDS
from ottla.errors import ConfigError
from ottla.quantities import MOST_COUNT, Span, count, seconds
from ottla.topics import text_problem

MOST_RECORDS = 32 * DEFAULT_TURN_RECORDS


@names_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnce:
    """Write what a handler sends with `out`, and the offsets of what it read, in one Kafka transaction.

    `value` and `key` are the serdes of `out.send`; without them both are bytes. `max_records` is how many records of a
    partition one transaction has at most; with `batch=True` `max_batch` says it. A transaction that is open for
    `transaction_timeout_s` seconds is aborted by the coordinator. It is open while it is written and committed, and not
    while handlers work.

    `instance` names this process among those of its group: a StatefulSet's pod name, for example. With a name, a new
    process ends at once what the old one of that name left open. Without a name it is left to the timeout, and
    consumers of the results wait that long. Two processes must not run with the same name: the older one ends with
    `FencedError`.
    """

    value: Any = None
    key: Any = None
    instance: str | None = None
    max_records: int = MOST_RECORDS
    transaction_timeout_s: Span = 10.0

    def __post_init__(self) -> None:
        if self.instance is not None and (not isinstance(self.instance, str) or not self.instance):
            raise ConfigError(f"ExactlyOnce: instance: found {self.instance!r}, wanted text that is not empty")
        if self.instance is not None and (problem := text_problem(self.instance)) is not None:
            raise ConfigError(f"ExactlyOnce: instance: {problem}")
        count("ExactlyOnce", "max_records", self.max_records)
        seconds("ExactlyOnce", "transaction_timeout_s", self.transaction_timeout_s, least=1, most=MOST_COUNT // 1_000)
