"""Models that every format is tried with, and a context."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import uuid
from decimal import Decimal
from types import SimpleNamespace
from typing import Annotated, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from ottla.serdes import AvroType, SerdeContext, decimal


class Status(enum.Enum):
    NEW = "new"
    PAID = "paid"


class Route(enum.Enum):
    FAST = "same day"
    SLOW = "by sea"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 9


@dataclasses.dataclass
class Address:
    street: str
    zip_code: str | None = None


@dataclasses.dataclass
class Line:
    sku: str
    quantity: int
    price: Annotated[Decimal, decimal(10, 2)]


@dataclasses.dataclass
class Order:
    id: int
    customer: str
    placed_at: datetime.datetime
    total: float
    ship_to: Address
    due: datetime.date | None = None
    lines: list[Line] = dataclasses.field(default_factory=list)
    tags: dict[str, str] = dataclasses.field(default_factory=dict)
    status: Status = Status.NEW
    route: Route = Route.SLOW
    level: Level = Level.LOW
    bill_to: Address | None = None
    reference: uuid.UUID | None = None
    blob: bytes = b"\xff\x00"
    shard: Annotated[int, AvroType("int")] = 0

    def __post_init__(self) -> None:
        if self.total < 0:
            raise ValueError(f"total is negative: {self.total}")


@dataclasses.dataclass
class Flat:
    id: int
    name: str
    amount: float | None = None

    def __post_init__(self) -> None:
        if self.id < 0:
            raise ValueError(f"id is negative: {self.id}")


class FlatStruct(msgspec.Struct):
    id: int
    name: str
    amount: float | None = None


class FlatDict(TypedDict):
    id: int
    name: str
    amount: float | None


class FlatTuple(NamedTuple):
    id: int
    name: str
    amount: float | None = None


class FlatModel(pydantic.BaseModel):
    id: pydantic.NonNegativeInt
    name: str
    amount: float | None = None


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


@pytest.fixture(scope="session")
def models() -> SimpleNamespace:
    return SimpleNamespace(**{name: value for name, value in globals().items() if isinstance(value, type)})


@pytest.fixture(scope="session")
def ctx() -> SerdeContext:
    return SerdeContext("orders", "value")


@pytest.fixture
def order() -> Order:
    return Order(
        id=7,
        customer="Ada Łódź",
        placed_at=datetime.datetime(2026, 2, 3, 4, 5, 6, 789_000, tzinfo=datetime.UTC),
        total=12.5,
        ship_to=Address("1 Main St", "00-001"),
        due=datetime.date(2026, 3, 1),
        lines=[Line("A-1", 2, Decimal("3.25")), Line("B-2", 1, Decimal("6.00"))],
        tags={"channel": "web"},
        status=Status.PAID,
        route=Route.FAST,
        level=Level.HIGH,
        bill_to=Address("2 Side St"),
        reference=uuid.UUID("12345678-1234-5678-1234-567812345678"),
        blob=b"\x00\x01",
        shard=3,
    )
