"""Two services that agree on a schema: the id of each record's schema travels in front of it.

Run it with nothing installed but Ottla: python registry.py (it starts a registry; with an address it uses that one).
"""

import sys
from contextlib import ExitStack
from dataclasses import dataclass

from ottla import Avro, Malformed
from ottla.serdes import SchemaRegistry, SerdeContext
from ottla.testing import EmbeddedRegistry


@dataclass
class Order:
    """What the first service writes."""

    id: int
    total: float


@dataclass
class OrderWithCurrency:
    """What the second service reads: a later version, with a default for what the first did not have."""

    id: int
    total: float
    currency: str = "EUR"


def main(arguments: list[str]) -> None:
    with ExitStack() as stack:
        url = arguments[0] if arguments else stack.enter_context(EmbeddedRegistry()).url
        ctx = SerdeContext("orders", "value")

        written = Avro(Order, registry=SchemaRegistry(url)).serialize(Order(1, 9.5), ctx)
        print("on the wire:", written.hex(" "))

        reader = Avro(OrderWithCurrency, registry=SchemaRegistry(url))
        print("read as:    ", reader.deserialize(written, ctx))

        broken = reader.deserialize(b"\x00\x00\x00\x00\x63" + written[5:], ctx)
        assert isinstance(broken, Malformed)
        print("unknown id: ", broken.error)


if __name__ == "__main__":
    main(sys.argv[1:])
