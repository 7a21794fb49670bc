"""Letters of one an hour from 1970 on, for commands that choose among them by time."""

from __future__ import annotations

from ottla.admin import Admin, Part
from ottla.failures.dead_letter import DeadLetterReason, build_dead_letter
from ottla.testing import Kafka


def write_letters(kafka: Kafka, topic: str, *, count: int, partitions: int = 2) -> None:
    """The letters by turns in the partitions; every second one is malformed, the others failed."""
    for number in range(count):
        letter = build_dead_letter(
            topic="orders",
            partition=0,
            offset=number,
            timestamp_ms=number * 3_600_000,
            key=None,
            value=b"x",
            headers=[],
            reason=DeadLetterReason(
                kind="failed" if number % 2 else "malformed",
                error_type="ValueError",
                message="wrong",
                stack_trace="",
                attempts=1,
                group="billing",
                dead_lettered_ms=number * 3_600_000,
            ),
        )
        kafka.produce(topic, [letter.value], headers=letter.headers, partition=number % partitions)


def starts(kafka: Kafka, topic: str) -> list[int]:
    """Where the log of each partition begins."""
    with Admin(kafka.bootstrap_servers) as admin:
        (fact,) = admin.describe_topics(topic, parts=[Part.OFFSETS])
    return [each.log_start or 0 for each in fact.partitions]
