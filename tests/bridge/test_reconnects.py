"""Pauses between connections to a broker."""

from __future__ import annotations

from ottla.bridge.reconnects import FIRST_PAUSE_S, LASTING_S, LONGEST_PAUSE_S, next_pause_s


def test_connections_that_end_soon_are_made_ever_more_rarely():
    pauses = [FIRST_PAUSE_S]
    for served_s in (0.0, 0.1, LASTING_S / 2, 0.0, 0.0, 0.0, 0.0, 0.0):
        pauses.append(next_pause_s(pauses[-1], served_s=served_s))
    assert pauses == sorted(pauses)
    assert pauses[1] == 2 * FIRST_PAUSE_S
    assert pauses[-1] == LONGEST_PAUSE_S


def test_behind_a_connection_that_served_the_next_comes_soon():
    assert next_pause_s(LONGEST_PAUSE_S, served_s=LASTING_S) == FIRST_PAUSE_S
