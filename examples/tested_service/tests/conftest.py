from datetime import UTC, datetime

import pytest
from shop.events import Line, Order


@pytest.fixture
def make_order():
    def make(number: int, customer: str = "ada", cents: int = 250) -> Order:
        return Order(number, customer, datetime(2026, 1, 2, tzinfo=UTC), [Line("tea", 2, cents)])

    return make
