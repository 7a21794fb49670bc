"""A service in fifteen lines. Run it: ottla run service:app --bootstrap-servers localhost:9092"""

from dataclasses import dataclass

from ottla import App, Json


@dataclass
class Order:
    id: int
    total: float


app = App("billing", dead_letter_topic="orders.dead-letters")


@app.handler("orders", value=Json(Order))
def on_order(order: Order) -> None:
    print(f"order {order.id}: {order.total:.2f}", flush=True)
