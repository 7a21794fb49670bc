"""The service's test: with fixtures that Ottla's pytest plugin brings along. Run it: pytest test_service.py"""

from service import Order, app

from ottla import Json
from ottla.testing import consumer_for, wait_until


def test_an_order_is_billed(capsys):
    assert consumer_for(app).deliver(Order(1, 9.5)).outcome == "done"
    assert capsys.readouterr().out == "order 1: 9.50\n"


def test_what_is_no_order_becomes_a_dead_letter():
    delivery = consumer_for(app).deliver(b'{"id": "one"}')
    assert delivery.outcome == "dead"
    assert delivery.dead_letter.kind == "invalid"


def test_on_a_real_broker_nothing_is_lost(kafka, run_app, capsys):
    kafka.create_topic("orders", partitions=3)
    kafka.create_topic("orders.dead-letters")
    kafka.produce("orders", [Order(n, n * 1.5) for n in range(100)], value=Json(Order), keys=range(100))
    kafka.produce("orders", [b"not an order"])
    run_app(app)
    dead = kafka.consume_all("orders.dead-letters", at_least=1)
    assert [record.value for record in dead] == [b"not an order"]
    assert dead[0].header_text("ottla-dlq-kind") == "malformed"
    billed = []

    def all_are_billed():
        billed.extend(line for line in capsys.readouterr().out.splitlines() if line.startswith("order "))
        return len(billed) >= 100

    wait_until(all_are_billed)
    assert len(set(billed)) == len(billed) == 100
