"""What `ottla run shop.main:app` runs."""

from shop.events import Invoice
from shop.service import build_app


def book(invoice: Invoice) -> None:
    """Stand in for the ledger."""
    print(f"booked order {invoice.order_id}: {invoice.customer} pays {invoice.cents / 100:.2f}", flush=True)


app = build_app(book)
