"""Serdes on their way to workers, without Spark."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys

import pytest

from ottla.errors import ConfigError
from ottla.serdes import Avro, Bytes, Int64, Json, SerdeContext, Str
from ottla.spark.portable import recipe_of

CTX = SerdeContext("orders")
pytest.importorskip("pyspark")


@dataclasses.dataclass
class Order:
    id: int
    note: str = "none"


def travelled(serde):
    return pickle.loads(pickle.dumps(recipe_of(serde)))()


@pytest.mark.parametrize("serde", [Bytes(), Str(), Int64(), Json(Order), Json(), Avro(Order), Avro("long")])
def test_a_serde_decodes_over_there_what_it_decodes_here(serde):
    data = {Bytes: b"x", Str: b"x", Int64: bytes(8), Json: b'{"id": 5}', Avro: b"\x0a\x00"}[type(serde)]
    if serde.__class__ is Avro and serde.schema == "long":
        data = b"\x0a"
    here, there = serde.deserialize(data, CTX), travelled(serde).deserialize(data, CTX)
    expected = dataclasses.asdict(here) if isinstance(here, Order) and isinstance(there, dict) else here
    assert there == expected


def test_a_serde_that_cannot_travel_says_what_to_pass_instead():
    hooked = Json(Order, dec_hook=lambda kind, value: value)
    with pytest.raises(ConfigError, match="pass a function that makes it"):
        recipe_of(hooked)
    assert travelled(lambda: Json(int, dec_hook=lambda kind, value: value)).deserialize(b"5", CTX) == 5


def test_a_class_of_a_script_travels_with_its_defaults_and_its_rules(tmp_path):
    """In a process that does not have the class: only the bytes arrive."""
    made = tmp_path / "recipe"
    script = f"""
from __future__ import annotations
import dataclasses, pickle
from ottla.serdes import Json
from ottla.spark.portable import recipe_of

@dataclasses.dataclass
class Line:
    count: int

@dataclasses.dataclass
class Order:
    lines: list[Line]
    note: str = "none"

    def __post_init__(self):
        if not self.lines:
            raise ValueError("an order has lines")

open({str(made)!r}, "wb").write(pickle.dumps(recipe_of(Json(Order))))
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    serde = pickle.loads(made.read_bytes())()
    order = serde.deserialize(b'{"lines": [{"count": 1}]}', CTX)
    assert (order.lines[0].count, order.note) == (1, "none")
    assert serde.deserialize(b'{"lines": []}', CTX).kind == "invalid"
    assert serde.deserialize(b"{}", CTX).kind == "invalid"
