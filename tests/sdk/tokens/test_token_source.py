"""When a token is fetched, renewed and used: the policy alone, with time as a number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.tokens.errors import TokenUnavailable
from ottla.tokens.source import FIRST_PAUSE_MS, MOST_PAUSE_MS, TokenSource
from ottla.tokens.token import Token

START_MS = 1_700_000_000_000
LIFE_MS = 100_000


def token_until(expires_ms: int, value: str = "") -> Token:
    return Token(value=value or f"t{expires_ms}", expires_at=expires_ms / 1000)


def fetched(life_ms: int = LIFE_MS, now_ms: int = START_MS) -> TokenSource:
    source = TokenSource(name="endpoint")
    source.fetch_begins(now_ms)
    source.token_arrived(token_until(now_ms + life_ms), now_ms)
    return source


def test_a_new_source_has_no_token_and_wants_one() -> None:
    source = TokenSource(name="endpoint")
    assert source.token(START_MS) is None
    assert source.should_fetch(START_MS)


def test_one_fetch_is_in_flight_at_a_time() -> None:
    source = TokenSource(name="endpoint")
    source.fetch_begins(START_MS)
    assert not source.should_fetch(START_MS + 10 * LIFE_MS)


def test_a_token_is_renewed_at_four_fifths_of_its_life_and_used_to_its_end() -> None:
    source = fetched()
    assert not source.should_fetch(START_MS + 79_999)
    assert source.should_fetch(START_MS + 80_000)
    assert source.token(START_MS + 99_999) is not None
    assert source.token(START_MS + 100_000) is None


def test_a_failure_leaves_the_last_good_token_and_is_tried_again_after_a_pause() -> None:
    source = fetched()
    now_ms = START_MS + 80_000
    source.fetch_begins(now_ms)
    source.fetch_failed(TokenUnavailable("down"), now_ms, chance=1.0)
    assert source.token(now_ms) is not None
    assert not source.should_fetch(now_ms + FIRST_PAUSE_MS - 1)
    assert source.should_fetch(now_ms + FIRST_PAUSE_MS)


def test_pauses_double_up_to_half_a_minute() -> None:
    source = TokenSource(name="endpoint")
    pauses = []
    for _ in range(10):
        source.fetch_begins(START_MS)
        source.fetch_failed(TokenUnavailable("down"), START_MS, chance=1.0)
        pauses.append(source.next_fetch_ms - START_MS)
    assert pauses == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000, 30_000]


def test_a_token_that_arrives_expired_is_refused() -> None:
    source = TokenSource(name="endpoint")
    source.fetch_begins(START_MS)
    with pytest.raises(TokenUnavailable, match="expired 5 s before it arrived"):
        source.token_arrived(token_until(START_MS - 5_000), START_MS)


def test_the_same_token_again_is_asked_for_again_before_it_ends() -> None:
    """A file that its writer has not renewed yet."""
    source = fetched()
    asked = 0
    now_ms = START_MS + 80_000
    while now_ms < START_MS + LIFE_MS:
        if source.should_fetch(now_ms):
            asked += 1
            source.fetch_begins(now_ms)
            source.token_arrived(token_until(START_MS + LIFE_MS), now_ms)
        now_ms += 100
    assert 3 < asked < 40


def test_a_clock_that_is_set_back_does_not_keep_the_source_from_fetching() -> None:
    source = fetched()
    assert source.should_fetch(START_MS - 3_600_000)


steps = st.lists(
    st.tuples(st.sampled_from(["ask", "arrive", "fail"]), st.integers(0, 60_000), st.integers(1, 300_000)), max_size=60
)


@given(steps)
def test_whatever_happens_no_expired_token_is_used_and_one_fetch_is_in_flight(
    steps: list[tuple[str, int, int]],
) -> None:
    source = TokenSource(name="endpoint")
    now_ms, in_flight, newest_ms = START_MS, False, 0
    for what, later_ms, life_ms in steps:
        now_ms += later_ms
        if what == "ask" and source.should_fetch(now_ms):
            assert not in_flight
            source.fetch_begins(now_ms)
            in_flight = True
        elif what == "arrive" and in_flight:
            source.token_arrived(token_until(now_ms + life_ms), now_ms)
            in_flight, newest_ms = False, now_ms + life_ms
        elif what == "fail" and in_flight:
            source.fetch_failed(TokenUnavailable("down"), now_ms, chance=0.5)
            in_flight = False
            assert now_ms < source.next_fetch_ms <= now_ms + MOST_PAUSE_MS
        found = source.token(now_ms)
        assert (found is not None) == (now_ms < newest_ms)
