"""Chooses the serde of a declaration or of a value."""

from __future__ import annotations

from typing import Any

from ottla.serdes.base import Serde
from ottla.serdes.builtin import Bytes, Int64, Str
from ottla.serdes.json import Json
from ottla.showing import shown


def as_serde(given: Any) -> Serde[Any]:
    """Return the serde for an argument: a serde, a serde class, or one of `bytes`, `str`, `int`.

    `value=Str`, `value=Str()` and `value=str` mean the same. None means bytes: nothing is decoded.

    Raises `TypeError` for anything else.
    """
    if given is None or given is bytes:
        return Bytes()
    if isinstance(given, Serde):
        return given
    if given is str:
        return Str()
    if given is int:
        return Int64()
    if isinstance(given, type) and issubclass(given, Serde):
        made: Serde[Any] = given()
        return made
    raise TypeError(
        f"expected a serde (Bytes(), Str(), Int64(), Json(T), Avro(T), Protobuf(T)), got {shown(given)}; "
        "a class of your own needs a format: Json(Order) or Avro(Order)"
    )


def serde_of(value: Any) -> Serde[Any]:
    """Return the serde for a value without a declared one: bytes, text and integers as themselves, anything else as
    JSON.
    """
    if value is None or isinstance(value, bytes):
        return Bytes()
    if isinstance(value, str):
        return Str()
    return Int64() if isinstance(value, int) and not isinstance(value, bool) else Json()
