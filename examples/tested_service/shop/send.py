"""Send an order: `python -m shop.send CUSTOMER SKU`."""

import sys
from datetime import UTC, datetime

from ottla import Avro, Producer, Str
from shop.events import Line, Order


def main(customer: str, sku: str) -> None:
    now = datetime.now(UTC)
    order = Order(int(now.timestamp()), customer, now, [Line(sku, 2, 250)])
    with Producer(key=Str(), value=Avro(Order)) as producer:
        sent = producer.send("orders", order, key=customer).result()
    print(f"order {order.id} is in {sent.topic}, partition {sent.partition}, at offset {sent.offset}")


if __name__ == "__main__":
    main(*sys.argv[1:])
