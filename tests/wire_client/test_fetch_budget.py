"""What a fetch may bring: never more than there is room for, and something after a while."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.wire_client.fetching.fetch_budget import FetchBudget

MIB = 1024 * 1024
TOTAL = 64 * MIB


@given(
    st.integers(MIB, 1 << 40),
    st.floats(1, 2_000),
    st.integers(1, 200),
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
)
def test_all_that_is_asked_for_fits_as_long_as_bytes_grow_as_they_did(
    total: int, growth: float, brokers: int, answers: list[float]
) -> None:
    room = FetchBudget(total)
    room.grew(1_000, round(growth * 1_000), is_all=True)
    held, flights = 0, list[tuple[int, int]]()
    for part in answers:
        share = room.share(free_bytes=total - held, partitions=3, brokers=brokers, now_ms=0)
        if share is not None:
            flights.append((share.most_bytes, room.asked(share.most_bytes)))
        assert held + room.taken <= total
        if len(flights) > 2 or share is None:
            if not flights:
                break
            most, taken = flights.pop(0)
            room.gives_back(taken)
            opening = room.came(round(most * part))
            held += round(most * part * growth)
            assert held + room.taken <= total + len(answers), "but for rounding"
            room.gives_back(opening)
    for _, taken in flights:
        room.gives_back(taken)
    assert room.taken == 0


def test_without_room_nothing_is_asked_for_until_a_second_has_passed() -> None:
    room = FetchBudget(TOTAL)
    assert room.share(free_bytes=TOTAL, partitions=1, brokers=1, now_ms=5_000) is not None
    assert room.share(free_bytes=-1, partitions=1, brokers=1, now_ms=5_999) is None
    starved = room.share(free_bytes=-1, partitions=1, brokers=1, now_ms=6_000)
    assert starved is not None
    assert starved.most_bytes == 1, "a broker gives a batch"
    assert room.share(free_bytes=0, partitions=1, brokers=1, now_ms=6_999) is None
    assert room.share(free_bytes=TOTAL, partitions=1, brokers=1, now_ms=6_999) is not None


def test_brokers_and_partitions_leave_each_other_some_of_the_room() -> None:
    room = FetchBudget(TOTAL)
    shares = []
    for _ in range(100):
        share = room.share(free_bytes=TOTAL // 2, partitions=7, brokers=1, now_ms=0)
        if share is None:
            break
        shares.append(share.most_bytes)
        room.asked(share.most_bytes)
    assert (shares == sorted(shares, reverse=True), len(shares) > 10, room.taken <= TOTAL // 2) == (True, True, True)
    assert FetchBudget(TOTAL).share(free_bytes=TOTAL, partitions=7, brokers=1, now_ms=0) == (TOTAL // 32, TOTAL // 16)


@given(st.integers(8 * MIB, 1 << 34), st.floats(1, 50), st.integers(1, 100))
def test_brokers_that_have_nothing_leave_room_for_all_the_others(total: int, growth: float, brokers: int) -> None:
    """They answer late. Meanwhile each of the others is asked for as much, at once and not after a second."""
    room = FetchBudget(total)
    room.grew(1_000, round(growth * 1_000), is_all=True)
    shares = [room.share(free_bytes=total, partitions=brokers, brokers=brokers, now_ms=0)]
    for _ in range(brokers - 1):
        assert shares[-1] is not None
        room.asked(shares[-1].most_bytes)
        shares.append(room.share(free_bytes=total, partitions=brokers, brokers=brokers, now_ms=0))
    assert {share is not None and share.most_bytes for share in shares} == {shares[0] and shares[0].most_bytes}
    assert room.taken <= total // 2 + brokers


def test_what_grew_is_asked_for_in_smaller_pieces_and_forgotten_slowly() -> None:
    room = FetchBudget(TOTAL)

    def most() -> int:
        share = room.share(free_bytes=TOTAL, partitions=1, brokers=1, now_ms=0)
        assert share is not None
        return share.most_bytes

    plain = most()
    room.grew(1_000, 9_000, is_all=True)
    assert most() == TOTAL // 16 // 10
    room.grew(1_000, 1_000, is_all=False)
    assert most() == TOTAL // 16 // 10, "the rest of it may have grown as much"
    small = most()
    room.grew(1_000, 1_000, is_all=True)
    assert small < most() < plain
    for _ in range(30):
        room.grew(1_000, 1_000, is_all=True)
    assert most() == plain
    room.grew(0, 0, is_all=True)
    assert most() == plain
