"""Orders in, invoices out.

Topics, group and the ledger are arguments, so that a test brings its own and runs beside others on a shared Kafka.
"""

from collections.abc import Callable

from ottla import App, Avro, Context, Dead, Outcome, RetryPolicy, Str
from shop.events import Invoice, Order

Book = Callable[[Invoice], None]


class LedgerUnavailable(Exception):
    """The ledger did not answer; it will in a moment."""


def build_app(
    book: Book, *, group: str = "billing", orders: str = "orders", dead_letters: str = "orders.dead-letters"
) -> App:
    app = App(group, dead_letter_topic=dead_letters, retry=RetryPolicy(max_attempts=4, initial_s=0.05, max_s=1.0))

    @app.handler(orders, value=Avro(Order), key=Str())
    def on_order(order: Order, key: str, context: Context) -> Outcome | None:
        if key != order.customer:
            return Dead(f"key {key!r} is not the customer {order.customer!r}: its order is not kept", kind="invalid")
        book(Invoice(order.id, order.customer, sum(line.quantity * line.cents for line in order.lines)))
        return None

    return app
