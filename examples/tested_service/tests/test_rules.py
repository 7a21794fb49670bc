"""The service's rules, without a broker. Decoding, retries and dead letters are real; waiting takes no time."""

import pytest
from shop.events import Invoice
from shop.service import LedgerUnavailable, build_app

from ottla.testing import consumer_for


def test_an_order_is_booked_once(make_order):
    booked = []
    delivery = consumer_for(build_app(booked.append)).deliver(make_order(1), key="ada")
    assert delivery.outcome == "done"
    assert booked == [Invoice(1, "ada", 500)]


def test_while_the_ledger_is_away_the_order_is_retried_with_growing_waits(make_order):
    answers = [LedgerUnavailable(), LedgerUnavailable(), None]

    def book(invoice):
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    delivery = consumer_for(build_app(book)).deliver(make_order(1), key="ada")
    assert (delivery.outcome, delivery.attempts) == ("done", 3)
    assert 0.07 <= delivery.waited_s <= 0.2


def test_a_ledger_that_stays_away_leaves_a_dead_letter_that_says_so(make_order):
    def book(invoice):
        raise LedgerUnavailable("connection refused")

    delivery = consumer_for(build_app(book)).deliver(make_order(1), key="ada")
    assert (delivery.outcome, delivery.attempts) == ("dead", 4)
    assert delivery.reason.endswith("LedgerUnavailable: connection refused")


@pytest.mark.parametrize(("raw", "kind"), [(b"", "malformed"), (b"\x02\x06ad", "malformed")])
def test_bytes_that_are_no_order_never_reach_the_handler(raw, kind):
    consumer = consumer_for(build_app(lambda invoice: None))
    assert consumer.deliver(raw, key="ada").dead_letter.kind == kind
    assert consumer.calls == []


def test_an_order_for_nothing_breaks_a_rule(make_order):
    order = make_order(1)
    order.lines[0].quantity = 0
    consumer = consumer_for(build_app(lambda invoice: None))
    dead_letter = consumer.deliver(order, key="ada").dead_letter
    assert (dead_letter.kind, "quantity is 0" in dead_letter.reason) == ("invalid", True)
