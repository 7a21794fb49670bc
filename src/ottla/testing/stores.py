"""Whether a store of your own does what `ottla.stores` asks for: call these in a test.

    def test_my_store():
        check_claim_store(MyStore(...))          # claim, look, renew, finish, release
        check_transaction_store(MyStore(...))    # mark, save_offset, and what a rollback takes back

Each check uses consumer names of its own, so a store that has been used before is fine. It checks the sessions for
threads and those for event loops, and raises `AssertionError` with the sentence that is not true.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from ottla.records import TopicPartition
from ottla.stores.protocols import ClaimStore, TransactionStore

_SOON_S = 0.2
_LONG_MS = 60_000


def check_claim_store(store: ClaimStore, *, wait_ms: Callable[[int], None] | None = None) -> None:
    """Check claims. `wait_ms` lets time pass for the store: a sleep if not given."""
    wait = wait_ms or (lambda ms: time.sleep(ms / 1_000))
    for connect in _connectors(store.claims, store.async_claims):
        _check_claims(connect, wait)
        _check_a_claim_runs_out(connect, wait)


def check_transaction_store(store: TransactionStore) -> None:
    """Check marks and offsets."""
    for connect in _connectors(store.session, store.async_session):
        _check_marks(connect)
        _check_that_a_second_mark_waits(connect)
        _check_offsets(connect)


# Claims


def _check_claims(connect: Callable[[], Any], wait: Callable[[int], None]) -> None:
    consumer, session, other = uuid.uuid4().hex, connect(), connect()
    ids = ["a", "ä ♥ '\"%s:x{}", "c" * 200]
    try:
        claimed = session.claim(consumer, ids, owner="one", lease_ms=_LONG_MS)
        assert set(claimed) == set(ids), f"claim() returns what was free: found {claimed!r}, wanted {ids!r}"
        assert not other.claim(consumer, ids, owner="two", lease_ms=_LONG_MS), "a claim keeps others out"
        assert set(session.claim(consumer, ids, owner="one", lease_ms=_LONG_MS)) == set(ids), "an owner claims again"
        assert set(other.claim(consumer + "x", ids, owner="two", lease_ms=_LONG_MS)) == set(ids), (
            "ids of another consumer are different ids"
        )
        states = other.look(consumer, [*ids, "never seen"])
        assert set(states) == set(ids), f"look() tells of ids that are claimed or done: found {states!r}"
        assert all(0 < (left or 0) <= _LONG_MS for left in states.values()), f"milliseconds left: found {states!r}"
        assert other.renew(consumer, ids, owner="two", lease_ms=_LONG_MS) == 0, "who has no claim renews none"
        assert session.renew(consumer, ids, owner="one", lease_ms=_LONG_MS) == len(ids), "an owner renews its claims"
        other.release(consumer, ids[:1], owner="two")
        assert not other.claim(consumer, ids[:1], owner="two", lease_ms=_LONG_MS), "only its owner releases a claim"
        session.release(consumer, ids[:1], owner="one")
        assert list(other.claim(consumer, ids[:1], owner="two", lease_ms=_LONG_MS)) == ids[:1], (
            "what was released is free"
        )
        session.finish(consumer, ids[1:], window_ms=_LONG_MS)
        states = other.look(consumer, ids[1:])
        assert states == dict.fromkeys(ids[1:]), f"what is done has the state None: found {states!r}"
        assert not session.claim(consumer, ids[1:], owner="one", lease_ms=_LONG_MS), "what is done is not claimed again"
        session.release(consumer, ids[1:], owner="one")
        assert other.look(consumer, ids[1:]) == dict.fromkeys(ids[1:]), "what is done is not released"
        assert not session.claim(consumer, [], owner="one", lease_ms=_LONG_MS), "nothing asked, nothing claimed"
    finally:
        session.close()
        other.close()


def _check_a_claim_runs_out(connect: Callable[[], Any], wait: Callable[[int], None]) -> None:
    consumer, session, other = uuid.uuid4().hex, connect(), connect()
    try:
        session.claim(consumer, ["a", "b"], owner="one", lease_ms=100)
        session.renew(consumer, ["b"], owner="one", lease_ms=_LONG_MS)
        wait(150)
        claimed = set(other.claim(consumer, ["a", "b"], owner="two", lease_ms=_LONG_MS))
        assert claimed == {"a"}, f"a claim runs out unless it is renewed: found {claimed!r} free, wanted {{'a'}}"
        assert session.renew(consumer, ["a", "b"], owner="one", lease_ms=_LONG_MS) == 1, "a lost claim is not renewed"
        session.finish(consumer, ["d"], window_ms=100)
        wait(150)
        while session.clean(consumer, window_ms=100):
            pass
        assert list(session.claim(consumer, ["d"], owner="one", lease_ms=_LONG_MS)) == ["d"], (
            "behind the window, and cleaned, a message is forgotten"
        )
    finally:
        session.close()
        other.close()


# Transactions


def _check_marks(connect: Callable[[], Any]) -> None:
    consumer, session = uuid.uuid4().hex, connect()
    ids = ["a", "ä ♥ '\"%s:x{}", "c" * 200]
    try:
        session.begin()
        assert session.transaction is not None, "a handler gets the transaction"
        marked = session.mark(consumer, ids)
        assert set(marked) == set(ids), f"mark() returns what was not marked: found {marked!r}, wanted {ids!r}"
        session.rollback()
        session.begin()
        assert set(session.mark(consumer, ids)) == set(ids), "a rollback takes marks back"
        session.unmark(consumer, ids[:1])
        session.commit()
        session.begin()
        marked = session.mark(consumer, [*ids, "new"])
        assert set(marked) == {ids[0], "new"}, f"a commit keeps marks: found {marked!r} new, wanted {[ids[0], 'new']!r}"
        session.rollback()
        session.begin()
        session.rollback()
        session.rollback()  # nothing is open: no error
    finally:
        session.close()


def _check_that_a_second_mark_waits(connect: Callable[[], Any]) -> None:
    consumer, first, second = uuid.uuid4().hex, connect(), connect()
    found: list[Any] = []

    def mark() -> None:
        try:
            second.begin()
            found.append(set(second.mark(consumer, ["a"])))
            second.rollback()
        except Exception as error:
            found.append(error)

    try:
        first.begin()
        first.mark(consumer, ["a"])
        thread = threading.Thread(target=mark)
        thread.start()
        thread.join(_SOON_S)
        assert not found, f"mark() waits for another transaction that marks the same message: found {found!r}"
        first.commit()
        thread.join(10)
        assert found == [set()], f"then it sees the mark: found {found!r}, wanted an empty set"
    finally:
        first.close()
        second.close()


def _check_offsets(connect: Callable[[], Any]) -> None:
    consumer, session, other = uuid.uuid4().hex, connect(), connect()
    here, there = TopicPartition("orders", 0), TopicPartition("orders", 1)
    try:
        starts = session.claim_offsets(consumer, "one", [here, there])
        assert set(starts) == {here, there}, f"claim_offsets() returns each partition: found {starts!r}"
        assert starts[here].next_offset is None, "nothing was saved yet"
        epoch = starts[here].epoch
        session.begin()
        assert session.save_offset(consumer, here, 7, epoch), "the owner saves"
        session.rollback()
        assert session.read_offset(consumer, here).next_offset is None, "a rollback takes an offset back"
        session.begin()
        session.save_offset(consumer, here, 7, epoch)
        session.commit()
        assert other.read_offset(consumer, here).next_offset == 7, "a commit keeps an offset"
        later = other.claim_offsets(consumer, "two", [here])[here]
        assert later.next_offset == 7, f"the next owner begins where the last one was: found {later!r}"
        assert later.epoch == epoch + 1, f"each claim has the next epoch: found {later.epoch}, wanted {epoch + 1}"
        session.begin()
        assert not session.save_offset(consumer, here, 9, epoch), "who lost the partition cannot save"
        session.rollback()
        session.pass_offset(consumer, here, 9, epoch)
        assert other.read_offset(consumer, here).next_offset == 7, "nor pass"
        other.pass_offset(consumer, here, 5, later.epoch)
        assert other.read_offset(consumer, here).next_offset == 7, "pass_offset() moves forward only"
        other.pass_offset(consumer, here, 8, later.epoch)
        assert other.read_offset(consumer, here).next_offset == 8, "pass_offset() moves forward"
        assert other.read_offset(consumer, TopicPartition("orders", 2)) is None, "nothing is known of others"
    finally:
        session.close()
        other.close()


# Both kinds of sessions by one name


def _connectors(connect: Callable[[], Any], connect_async: Callable[[], Any]) -> list[Callable[[], Any]]:
    return [connect, lambda: _OnALoop(connect_async)]


class _OnALoop:
    """An asynchronous session, called as one for threads. It has a loop of its own."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._runner = asyncio.Runner()
        self._session = self._runner.run(connect())

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        if not inspect.ismethod(found) and not inspect.iscoroutinefunction(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            async def result() -> Any:
                return await found(*arguments, **options)

            return self._runner.run(result())

        return call

    def close(self) -> None:
        self._runner.run(self._session.close())
        self._runner.close()
