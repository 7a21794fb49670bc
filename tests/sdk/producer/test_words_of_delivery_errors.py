"""The text of `DeliveryError`: each cause once, with the records that it kept from being delivered."""

from __future__ import annotations

from ottla.errors import DeliveryError, UndeliveredRecord


def undelivered(key: bytes, error: str) -> UndeliveredRecord:
    return UndeliveredRecord(topic="orders", partition=None, key=key, error=error)


def test_a_cause_that_many_records_share_is_said_once() -> None:
    error = DeliveryError([undelivered(b"%d" % number, "no topic") for number in range(5)])
    assert str(error) == (
        "5 record(s) not delivered: orders[?] key=b'0', orders[?] key=b'1', orders[?] key=b'2' and 2 more: no topic"
    )


def test_three_causes_are_said_and_what_is_left_is_counted() -> None:
    records = [undelivered(b"k", f"cause {number}") for number in (1, 2, 1, 3, 4, 5)]
    said = str(DeliveryError(records, total=2_000))
    assert said.startswith("2000 record(s) not delivered: orders[?] key=b'k', orders[?] key=b'k': cause 1; orders[?]")
    assert said.endswith("key=b'k': cause 3; and 1996 more")


def test_an_error_without_records_counts_them() -> None:
    assert str(DeliveryError([], total=1)) == "1 record(s) not delivered"
