"""How long a member that starts waits for a broker, without a broker, a socket or a clock."""

from __future__ import annotations

import pytest

from ottla import BrokerUnavailable
from ottla.config import consumer_settings
from ottla.consumer.member.broker_wait import Again, BrokerWait

SETTINGS = consumer_settings("one:9092,two:9093", group_id="billing", environ={})
REFUSED = "PLAINTEXT://one:9092: Connection refused"


def test_it_is_over_when_something_listens() -> None:
    wait = BrokerWait(SETTINGS, 10, 100)
    assert [address.host for address in wait.addresses] == ["one", "two"]
    assert wait.after(None, 100, gives_up=False) is None
    assert wait.after(None, 999, gives_up=True) is None


def test_a_warning_is_told_at_once_and_only_once() -> None:
    wait = BrokerWait(SETTINGS, 10, 100)
    assert wait.after(REFUSED, 101, gives_up=False) == Again(0.2, {"problem": REFUSED, "for_s": 9})
    assert wait.after(REFUSED, 102, gives_up=False) == Again(0.2, None)
    assert wait.after(REFUSED, 109.9, gives_up=False) == Again(pytest.approx(0.1), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("now_s", "gives_up"), [(110, False), (111, False), (101, True)])
def test_the_error_has_the_addresses_the_time_and_what_was_found(now_s: float, gives_up: bool) -> None:
    with pytest.raises(BrokerUnavailable, match=r"at one:9092,two:9093 within 10 s \(PLAINTEXT://one:9092: Connection"):
        BrokerWait(SETTINGS, 10, 100).after(REFUSED, now_s, gives_up=gives_up)


def test_a_wait_of_no_time_connects_once_and_is_not_told() -> None:
    wait = BrokerWait(SETTINGS, 0, 100)
    assert wait.connect_s(100) == 1
    with pytest.raises(BrokerUnavailable, match="within 0 s"):
        wait.after(REFUSED, 100.001, gives_up=False)
