"""The service on Kafka: embedded, in a container or yours, by --kafka."""

import pytest
from shop.events import Order
from shop.service import LedgerUnavailable, build_app

from ottla import Avro
from ottla.testing import wait_until

CUSTOMERS = ["ada", "grace", "edsger"]


@pytest.fixture
def topics(make_topic):
    return {"orders": make_topic("orders", partitions=3), "dead_letters": make_topic("dead")}


def test_every_order_is_booked_and_each_customers_in_order(kafka, topics, kafka_group, run_app, make_order):
    booked = []
    run_app(build_app(booked.append, group=kafka_group, **topics))
    orders = [make_order(number, CUSTOMERS[number % 3]) for number in range(300)]
    kafka.produce(topics["orders"], orders, value=Avro(Order), keys=lambda order: order.customer)
    wait_until(lambda: len(booked) >= 300, what="300 invoices")
    for customer in CUSTOMERS:
        numbers = [invoice.order_id for invoice in booked if invoice.customer == customer]
        assert numbers == sorted(numbers)
    assert len(booked) == 300
    assert kafka.consume_all(topics["dead_letters"]) == []


def test_what_cannot_be_booked_is_kept_byte_for_byte(kafka, topics, kafka_group, run_app, make_order):
    booked = []
    run_app(build_app(booked.append, group=kafka_group, **topics))
    kafka.produce(topics["orders"], [b"\x02garbage"], keys=["ada"], headers=[("trace", b"\xff\x00")])
    kafka.produce(topics["orders"], [make_order(1)], value=Avro(Order), keys=["ada"])
    wait_until(lambda: booked, what="the good order behind the bad one")
    (dead,) = kafka.consume_all(topics["dead_letters"], at_least=1)
    assert (dead.raw_key, dead.raw_value) == (b"ada", b"\x02garbage")
    assert dead.header("trace") == b"\xff\x00"
    assert dead.header_text("ottla-dlq-kind") == "malformed"
    assert dead.header_text("ottla-dlq-topic") == topics["orders"]


def test_a_ledger_that_comes_back_loses_nothing(kafka, topics, kafka_group, run_app, make_order):
    booked, failures = [], [LedgerUnavailable(), LedgerUnavailable()]

    def book(invoice):
        if failures:
            raise failures.pop()
        booked.append(invoice.order_id)

    run_app(build_app(book, group=kafka_group, **topics))
    kafka.produce(topics["orders"], [make_order(number) for number in range(5)], value=Avro(Order), keys=["ada"] * 5)
    wait_until(lambda: len(booked) == 5, what="5 invoices")
    assert booked == [0, 1, 2, 3, 4]


def test_a_restarted_service_goes_on_where_it_stopped(kafka, topics, kafka_group, run_app, make_order):
    first, second = [], []
    running = run_app(build_app(first.append, group=kafka_group, **topics))
    kafka.produce(topics["orders"], [make_order(1)], value=Avro(Order), keys=["ada"])
    wait_until(lambda: first, what="the first order")
    running.stop()
    kafka.produce(topics["orders"], [make_order(2)], value=Avro(Order), keys=["ada"])
    run_app(build_app(second.append, group=kafka_group, **topics))
    wait_until(lambda: second, what="the second order")
    assert [invoice.order_id for invoice in first + second] == [1, 2]
