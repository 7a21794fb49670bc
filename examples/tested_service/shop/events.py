"""The types of the messages that the service receives and sends."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass
class Line:
    sku: str
    quantity: int
    cents: int

    def __post_init__(self) -> None:
        if self.quantity < 1:
            raise ValueError(f"{self.sku}: quantity is {self.quantity}, wanted 1 or more")


@dataclass
class Order:
    id: int
    customer: str
    placed_at: datetime
    lines: list[Line] = field(default_factory=list)


@dataclass
class Invoice:
    order_id: int
    customer: str
    cents: int
