"""What a relay decides, over random failures: order of keys, nothing lost, refused rows hold up their key alone."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla import (
    AuthenticationError,
    BrokerUnavailable,
    BufferFull,
    ConfigError,
    InputError,
    LifecycleError,
    RecordTooLarge,
    UnknownTopic,
)
from ottla.outbox.outbox import headers_of_text, headers_to_text
from ottla.outbox.relaying import FIRST_WAIT_MS, LONGEST_WAIT_MS, Blame, Relaying, SettledRows, blame_of
from ottla.stores.outbox_sessions import OutboxRow
from ottla.stores.outbox_sql import LOCKS, lock_of

TOO_LARGE = RecordTooLarge(topic="t", size_bytes=2, limit_bytes=1, setting="max.message.bytes")


def row(number: int, topic: str = "t", key: bytes | None = b"k", value: bytes = b"") -> OutboxRow:
    return OutboxRow(
        id=number,
        topic=topic,
        partition=None,
        key=key,
        value=value,
        headers="[]",
        timestamp_ms=0,
        message_id=str(number),
    )


class Database:
    """The table, and the rows that a read finds in it."""

    def __init__(self, rows: list[OutboxRow]) -> None:
        self.rows = {each.id: each for each in rows}
        self.parked: dict[int, str] = {}

    def read(self, skipped: Any, most_rows: int, most_bytes: int) -> list[OutboxRow]:
        found: list[OutboxRow] = []
        size = 0
        held: set[Any] = set()
        for number in sorted(self.rows):
            each = self.rows[number]
            if number in self.parked:
                held.add((each.topic, each.key))
                continue
            if each.topic in skipped or (each.key is not None and (each.topic, each.key) in held):
                continue
            if len(found) >= most_rows or size >= most_bytes:
                break
            found.append(each)
            size += len(each.value)
        return found

    def write(self, settled: SettledRows) -> None:
        for number in settled.delete:
            self.rows.pop(number, None)
        for number, reason in settled.park:
            if number in self.rows:
                self.parked[number] = reason


class Client:
    """A producer that keeps its word: in order per partition, and nothing behind a record that it gave up.

    A topic is one partition here, which is the hardest case.
    """

    def __init__(self, log: list[OutboxRow], chance: Random, bad: set[int]) -> None:
        self.log, self._chance, self._bad = log, chance, bad
        self.queue: list[OutboxRow] = []
        self.is_over = False

    def send(self, each: OutboxRow) -> None:
        if self.is_over:
            raise LifecycleError("over")
        if each.id in self._bad and self._chance.random() < 0.5:
            raise TOO_LARGE
        if self._chance.random() < 0.03:
            raise BufferFull("full")
        self.queue.append(each)

    def reports(self) -> list[tuple[OutboxRow, BaseException | None]]:
        """What has settled since. One failure ends the client."""
        found: list[tuple[OutboxRow, BaseException | None]] = []
        while self.queue:
            if not self.is_over and self._chance.random() < 0.2:
                return found
            each = self.queue.pop(0)
            if self.is_over:
                found.append((each, LifecycleError("purged")))
                continue
            fate = "too large" if each.id in self._bad else self._chance.choice(FATES)
            if fate == "acknowledged":
                self.log.append(each)
                found.append((each, None))
            elif fate == "acknowledged, and nobody heard":
                self.log.append(each)
                self.is_over = True
                found.append((each, LifecycleError("purged")))
            else:
                self.is_over = True
                found.append((each, ERRORS[fate]))
        return found


ERRORS: dict[str, BaseException] = {
    "too large": TOO_LARGE,
    "unknown": UnknownTopic("t"),
    "away": BrokerUnavailable("away"),
}
FATES = [*["acknowledged"] * 12, "acknowledged, and nobody heard", "unknown", "away"]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_first_copies_are_in_the_order_of_their_key_whatever_fails(seed: int) -> None:
    chance = Random(seed)
    rows = [
        row(number, chance.choice(["t", "u"]), chance.choice([None, b"a", b"b"]))
        for number in range(1, chance.randrange(1, 40))
    ]
    bad = {each.id for each in rows if chance.random() < 0.08}
    log: list[OutboxRow] = []
    database = Database(rows)
    relays = [_Relay(database, log, chance, bad) for _ in range(chance.choice([1, 2]))]
    for _ in range(3_000):
        if not database.read((), 100, 10**6) and all(relay.is_idle for relay in relays):
            break
        chance.choice(relays).step()
    else:
        pytest.fail("rows still wait")

    first: list[OutboxRow] = []
    for each in log:
        if each not in first:
            first.append(each)
    for topic in ("t", "u"):
        for key in (b"a", b"b"):
            of_key = [each for each in rows if (each.topic, each.key) == (topic, key)]
            until = next((at for at, each in enumerate(of_key) if each.id in bad), len(of_key))
            assert [each for each in first if (each.topic, each.key) == (topic, key)] == of_key[:until]
    without_key = {each.id for each in rows if each.key is None}
    assert {each.id for each in first if each.key is None} == without_key - bad
    assert without_key & bad <= set(database.parked)


class _Relay:
    """The shell, step by step, so that two of them mix in every way. It may die at any step."""

    def __init__(self, database: Database, log: list[OutboxRow], chance: Random, bad: set[int]) -> None:
        self._database, self._chance = database, chance
        self._new_client = lambda: Client(log, chance, bad)
        self._begin()

    def _begin(self) -> None:
        self._policy, self._client, self._now_ms = Relaying(most_rows=8, most_bytes=10**6), self._new_client(), 0

    @property
    def is_idle(self) -> bool:
        return not self._policy.flying and not self._policy.settled()

    def step(self) -> None:
        if self._chance.random() < 0.03:
            self._begin()  # what was with the client is in the log, or is lost
            return
        policy = self._policy
        self._now_ms += self._chance.choice([0, 500, LONGEST_WAIT_MS])
        found = self._database.read(policy.skipped(self._now_ms), *policy.room) if policy.room[0] else []
        policy.began()
        for each in found:
            if not policy.takes(each, self._now_ms):
                continue
            try:
                self._client.send(each)
            except (RecordTooLarge, BufferFull, LifecycleError) as error:
                policy.not_sent(each, error, self._now_ms)
            else:
                policy.sent(each)
        for each, error in self._client.reports():
            if error is None:
                policy.acknowledged(each)
            else:
                policy.failed(each, error, self._now_ms)
        settled = policy.settled()
        self._database.write(settled)
        policy.written(settled)
        if policy.needs_new_producer or self._client.is_over:  # it may have kept silent about some
            self._client = self._new_client()
            policy.renewed()


@pytest.mark.parametrize(
    ("error", "blame"),
    [
        (TOO_LARGE, Blame.ROW),
        (InputError("partition"), Blame.ROW),
        (UnknownTopic("t"), Blame.TOPIC),
        (ConfigError("batch.size"), Blame.TOPIC),
        (AuthenticationError("password"), Blame.TOPIC),
        (BufferFull("full"), Blame.NOBODY),
        (BrokerUnavailable("away"), Blame.NOBODY),
        (LifecycleError("gapless"), Blame.PRODUCER),
    ],
)
def test_whom_an_error_blames(error: Exception, blame: Blame) -> None:
    assert blame_of(error) is blame


def test_a_topic_that_fails_is_tried_less_and_less_often_and_at_once_after_a_success() -> None:
    policy, now_ms, waits = Relaying(most_rows=10, most_bytes=10), 0, []
    for _ in range(8):
        policy.sent(row(1))
        policy.failed(row(1), UnknownTopic("t"), now_ms)
        wait_ms = next(ms for ms in range(0, 60_001, 500) if not policy.skipped(now_ms + ms))
        waits.append(wait_ms)
        now_ms += wait_ms
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert "UnknownTopic" in policy.problems["t"]
    policy.sent(row(1))
    policy.acknowledged(row(1))
    assert not policy.problems
    policy.sent(row(2))
    policy.failed(row(2), UnknownTopic("t"), now_ms)
    assert not policy.skipped(now_ms + FIRST_WAIT_MS)


def test_of_several_refused_records_each_is_tried_alone_before_one_is_parked() -> None:
    policy = Relaying(most_rows=10, most_bytes=10**6)
    rows = [row(1), row(2), row(3, key=None)]
    for each in rows:
        policy.sent(each)
    for each in rows:
        policy.failed(each, InputError("refused"), 0)
    assert not policy.settled()
    policy.began()
    assert policy.takes(rows[0], 0)
    policy.sent(rows[0])
    assert not policy.takes(rows[1], 0)
    policy.acknowledged(rows[0])
    assert policy.takes(rows[1], 0)
    policy.sent(rows[1])
    policy.failed(rows[1], InputError("refused"), 0)
    assert policy.settled() == SettledRows(delete=(1,), park=((2, "InputError: refused"),))
    assert not policy.takes(row(4), 0), "its key waits, before the database knows"
    assert policy.takes(rows[2], 0)


def test_rows_of_a_key_in_different_partitions_go_one_after_the_other() -> None:
    """A record for a partition that is not there fails without a broker, and nothing behind it would be stopped."""
    policy = Relaying(most_rows=10, most_bytes=10**6)
    first, second, third = replace(row(1), partition=7), row(2), replace(row(3), partition=7)
    policy.sent(first)
    assert not policy.takes(second, 0)
    assert not policy.takes(third, 0), "it is behind the second"
    policy.acknowledged(first)
    policy.began()
    assert policy.takes(second, 0)
    policy.sent(second)
    assert not policy.takes(third, 0)


def test_rows_on_their_way_are_bounded_by_number_and_bytes() -> None:
    policy = Relaying(most_rows=3, most_bytes=100)
    policy.sent(row(1, value=b"x" * 90))
    assert policy.room == (2, 100 - 90 - len(b"k") - len("[]"))
    policy.sent(row(2, value=b"x" * 90))
    assert policy.room == (1, 0)
    policy.acknowledged(row(1, value=b"x" * 90))
    policy.acknowledged(row(2, value=b"x" * 90))
    assert policy.room == (3, 100)


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.none() | st.binary())))
def test_headers_come_back_as_they_were(headers: list[tuple[str, bytes | None]]) -> None:
    assert headers_of_text(headers_to_text(headers)) == headers


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "{}]",
            "[1]",
            '[["a"]]',
            '[["a", 1]]',
            '[["a", {"base64": "?"}]]',
            '[[1, "a"]]',
            '[["a", {"base64": []}]]',
        ),
        *(
            "[" * 2_000,
            '[["a", ' * 2_000,
            '[["\\ud800", "x"]]',
            '[["a", "\\ud800"]]',
            '[["a\\u0000b", "x"]]',
            "[NaN]",
            "\ud800",
        ),
    ],
)
def test_headers_that_somebody_wrote_wrongly_are_the_rows_fault(text: str) -> None:
    with pytest.raises(InputError, match="headers: found"):
        headers_of_text(text)


def test_keys_share_a_bounded_number_of_locks() -> None:
    assert lock_of("t", None) is None
    assert lock_of("t", b"a") == lock_of("t", b"a") != lock_of("u", b"a")
    assert {lock_of("t", b"%d" % number) for number in range(50_000)} == set(range(LOCKS))
    assert replace(row(1), key=None).key is None
