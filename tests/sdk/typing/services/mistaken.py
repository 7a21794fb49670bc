"""Eight mistakes, each at a line that says what mypy and pyright make of it."""

from __future__ import annotations

from dataclasses import dataclass

from ottla import App, Consumer, Json, Producer, Record, TagHeader


@dataclass
class Order:
    id: int
    total: float


app = App("billing", dead_letter_topic="orders.dead-letters")
orders = Json(Order)


# A handler of something else than its serde gives.
@app.handler("orders", value=orders)  # expected: mypy[arg-type] pyright[reportArgumentType]
def of_another_type(order: int) -> None: ...


# A record of something else.
@app.handler("orders-2", value=orders)  # expected: mypy[arg-type] pyright[reportArgumentType]
def of_another_record(record: Record[str]) -> None: ...


# One value, where a batch is handed over.
@app.handler("orders-3", value=orders, batch=True)  # expected: mypy[arg-type] pyright[reportArgumentType]
def of_one(order: Order) -> None: ...


# A choice that there is not.
@app.handler("orders-4", value=orders, ordering="keys")  # expected: mypy[call-overload] pyright[reportArgumentType]
def misspelt(order: Order) -> None: ...


# A class for a serde.
@app.handler("orders-5", value=Order)  # expected: mypy[arg-type] pyright[reportArgumentType]
def without_a_format(order: Order) -> None: ...


# A handler of an event type, of something else than its serde gives.
events = app.topic("orders-6", by=TagHeader("type"))


@events.on("a", value=orders)  # expected: mypy[arg-type] pyright[reportArgumentType]
def of_another_event(order: int) -> None: ...


producer = Producer(value=orders)

# A value of another type.
producer.send("orders", {"id": 1, "total": 9.5})  # expected: mypy[arg-type] pyright[reportArgumentType]

# A key of text without a serde for keys.
producer.send("orders", Order(1, 9.5), key="42")  # expected: mypy[arg-type] pyright[reportArgumentType]

# Without dead letters, what could not be decoded is handed over too.
for record in Consumer("orders", group="reports", value=orders):
    print(record.value.total)  # expected: mypy[union-attr] pyright[reportAttributeAccessIssue]
