"""How long a member that starts waits for a broker, without a broker, a socket or a clock."""

from __future__ import annotations

import pytest

from ottla import BrokerUnavailable
from ottla.app.member.broker_wait import BrokerWait
from ottla.config import consumer_settings
from ottla.retrying import Awaited, NotYet

SETTINGS = consumer_settings("one:9092,two:9093", group_id="billing", environ={})
REFUSED = "PLAINTEXT://one:9092: Connection refused"


def test_it_is_over_when_something_listens() -> None:
    wait = BrokerWait(SETTINGS, 10, 100)
    assert [address.host for address in wait.addresses] == ["one", "two"]
    wait.check(None, 100, gives_up=False)
    wait.check(None, 999, gives_up=True)


def test_a_warning_is_told_at_once_and_only_once() -> None:
    wait = BrokerWait(SETTINGS, 10, 100)
    with pytest.raises(Awaited) as first:
        wait.check(REFUSED, 101, gives_up=False)
    assert (first.value.event, first.value.fields) == ("broker_awaited", {"problem": REFUSED, "for_s": 9})
    for now_s in (102, 109.9):
        with pytest.raises(NotYet) as later:
            wait.check(REFUSED, now_s, gives_up=False)
        assert not isinstance(later.value, Awaited)


@pytest.mark.parametrize("now_s", [110, 111])
def test_the_error_has_the_addresses_the_time_and_what_was_found(now_s: float) -> None:
    with pytest.raises(BrokerUnavailable, match=r"at one:9092,two:9093 within 10 s \(PLAINTEXT://one:9092: Connection"):
        BrokerWait(SETTINGS, 10, 100).check(REFUSED, now_s, gives_up=False)


def test_a_wait_that_was_stopped_does_not_claim_to_have_lasted_its_time() -> None:
    with pytest.raises(BrokerUnavailable, match=r"at one:9092,two:9093 when the wait for it was stopped") as caught:
        BrokerWait(SETTINGS, 10, 100).check(REFUSED, 101, gives_up=True)
    assert REFUSED in str(caught.value)
    assert "10 s" not in str(caught.value)


def test_a_wait_of_no_time_connects_once_and_is_not_told() -> None:
    wait = BrokerWait(SETTINGS, 0, 100)
    assert wait.connect_s(100) == 1
    with pytest.raises(BrokerUnavailable, match="within 0 s"):
        wait.check(REFUSED, 100.001, gives_up=False)
