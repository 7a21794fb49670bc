"""JSON by msgspec: any value, or a dataclass, TypedDict, `msgspec.Struct`, pydantic model, or a type built of these.

    Json()                  any JSON value
    Json(Order)             a value of that type; what does not fit is `Malformed`
    Json(Order | None)      JSON `null` decodes to None too (a Kafka null always does)
    Json(Created | Shipped) dataclasses that a `Literal` field distinguishes
    Json(Order, registry=r) the registry's wire format, with the JSON Schema of the type

Bytes that are not JSON are *malformed*. JSON that breaks a rule of the type (a missing field, a wrong type, a
constraint of `Annotated`, a `ValueError` from `__post_init__` or from a pydantic validator) is *invalid*.

JSON has no NaN and no infinity, and encoders write them as null: a value that holds one is refused. A typed serde also
reads back what it wrote before it lets the bytes go (less than a microsecond for a flat record): what a producer sends,
a consumer with the same type can read. `check=False` leaves both out.
"""

from __future__ import annotations

import builtins
import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import msgspec

from ottla.errors import ConfigError, SerializationError
from ottla.records import Malformed
from ottla.serdes.base import SerdeContext, invalid, malformed, type_name
from ottla.serdes.framing import FramedSerde, Framing
from ottla.serdes.json_unions import json_union
from ottla.serdes.models import explain, fill_defaults, mentions_pydantic, type_text
from ottla.serdes.registry import SchemaRegistry
from ottla.serdes.subjects import SubjectName, topic_name
from ottla.serdes.wire_format import HEADER_BYTES, NotFramed, schema_id_of
from ottla.typevars import T_any as T


class Json(FramedSerde[T]):
    """JSON text in UTF-8, as bytes of a record's key or value.

    `enc_hook` and `dec_hook` are msgspec's hooks for types it does not know; pydantic types have their own.
    With a registry the schema id in front of a payload is written and removed; it is not looked up to decode, because
    the type says all that is needed. Raises `ConfigError` for a type that msgspec refuses, as a union of two
    dataclasses that no field distinguishes. A class that msgspec does not know is accepted: the hooks have to convert
    it to JSON and back.
    """

    __slots__ = ("_check", "_decode", "_encode", "_options", "_reads_back", "type")

    # `Order | None` is no class: type checkers take it for Any, and for itself in `Json[Order | None](Order | None)`.
    @overload
    def __init__(
        self,
        type: builtins.type[T],
        *,
        check: bool = True,
        enc_hook: Callable[[Any], Any] | None = None,
        dec_hook: Callable[[builtins.type[Any], Any], Any] | None = None,
        registry: SchemaRegistry | str | None = None,
        subject: SubjectName = topic_name,
        auto_register: bool = True,
    ) -> None: ...

    @overload
    def __init__(
        self,
        type: Any = Any,
        *,
        check: bool = True,
        enc_hook: Callable[[Any], Any] | None = None,
        dec_hook: Callable[[builtins.type[Any], Any], Any] | None = None,
        registry: SchemaRegistry | str | None = None,
        subject: SubjectName = topic_name,
        auto_register: bool = True,
    ) -> None: ...

    def __init__(
        self,
        type: Any = Any,
        *,
        check: bool = True,
        enc_hook: Callable[[Any], Any] | None = None,
        dec_hook: Callable[[type[Any], Any], Any] | None = None,
        registry: SchemaRegistry | str | None = None,
        subject: SubjectName = topic_name,
        auto_register: bool = True,
    ) -> None:
        self.type = type
        self._options: dict[str, Any] = {
            "check": check,
            "enc_hook": enc_hook,
            "dec_hook": dec_hook,
            "registry": registry,
            "subject": subject,
            "auto_register": auto_register,
        }
        self._framing: Framing | None = None
        if registry is not None:
            self._framing = Framing(
                registry,
                "JSON",
                lambda: _json_schema(type),
                record_name=getattr(type, "__name__", None),
                subject=subject,
                auto_register=auto_register,
            )
        self._encode: Callable[[Any], bytes]
        self._decode: Callable[[bytes], Any]
        self._check = check
        self._reads_back = check and type is not Any
        if mentions_pydantic(type):
            self._encode, self._decode = _pydantic_codec(type)
            self._reads_back = False  # pydantic's encoder refuses what no longer fits the model, but for NaN
            return
        try:
            self._decode = msgspec.json.Decoder(type, dec_hook=dec_hook).decode
        except TypeError as error:
            union = json_union(type)
            if union is None:
                hint = (
                    "; a field that is a Literal in each class distinguishes them"
                    if "one dataclass" in str(error)
                    else ""
                )
                raise ConfigError(f"Json({type_text(type)}): {error}{hint}") from error
            self._decode = union.decoder(dec_hook)
        self._encode = msgspec.json.Encoder(enc_hook=enc_hook).encode

    @property
    def value_type(self) -> Any:
        return self.type

    @property
    def has_decoding_hook(self) -> bool:
        """Return whether it has a hook for types unknown to msgspec."""
        return self._options["dec_hook"] is not None

    def typed(self, type: Any) -> Json[Any]:
        """Return a serde with the same options for values of `type`."""
        return Json(type, **self._options)

    def serialize(self, value: T | None, ctx: SerdeContext) -> bytes | None:
        if value is None:
            return None
        prefix = b"" if self._framing is None else self._framing.header(ctx)
        try:
            fill_defaults(value)
            data = self._encode(value)
        except RecursionError:
            raise SerializationError(
                f"{ctx.topic} {ctx.part}: {type_name(value)} is nested too deeply for JSON"
            ) from None
        except Exception as error:
            place = _first_unencodable(value, self._encode)
            raise SerializationError(f"{ctx.topic} {ctx.part}: {explain(error)} - at `{place}`") from error
        has_null = self._check and b"null" in data
        if has_null or self._reads_back:
            try:
                read = self._decode(data)
            except Exception as error:
                raise SerializationError(
                    f"{ctx.topic} {ctx.part}: the JSON of this {type_name(value)} cannot be decoded again as "
                    f"{type_text(self.type)}: {explain(error)}"
                ) from error
            # What a hook encodes need not compare: arrays raise.
            if has_null and (self._options["enc_hook"] or read != value) and (number := _not_finite(value)):
                raise SerializationError(f"{ctx.topic} {ctx.part}: JSON has no NaN and no infinity - at `{number}`")
        return prefix + data if prefix else data

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> T | Malformed | None:
        if data is None:
            return None
        if self._framing is not None:
            return self._deserialize_framed(data, ctx)
        try:
            value: T = self._decode(data)
        except Exception as error:
            return self._refused(data, ctx, error)
        return value

    def deserialize_many(self, data: Sequence[bytes | None], ctx: SerdeContext) -> list[T | Malformed | None]:
        if self._framing is not None:
            return super().deserialize_many(data, ctx)
        decode: Callable[[bytes | None], T] = self._decode  # type: ignore[assignment]
        values: list[T | Malformed | None] = []
        if None in data:
            for item in data:
                values.append(self.deserialize(item, ctx))
            return values
        items = iter(data)
        while len(values) < len(data):
            try:
                values.extend(map(decode, items))  # keeps what came before an error; a loop in Python costs 40 ns more
            except Exception as error:
                values.append(self._refused(data[len(values)], ctx, error))  # type: ignore[arg-type]
        return values

    def _deserialize_framed(self, data: bytes, ctx: SerdeContext) -> T | Malformed | None:
        try:
            schema_id_of(data)
        except NotFramed as error:
            return malformed(data, ctx, error, what="not the registry wire format")
        payload = data[HEADER_BYTES:]
        try:
            value: T = self._decode(payload)
        except Exception as error:
            return dataclasses.replace(self._refused(payload, ctx, error), raw=data)
        return value

    def _refused(self, data: bytes, ctx: SerdeContext, error: Exception) -> Malformed:
        # A typed decoder stops at the first rule broken, perhaps before it meets the end of truncated bytes. Whether
        # these bytes are JSON at all is asked separately, so that the answer does not depend on the order of fields.
        try:
            msgspec.json.decode(data)
        except Exception as not_json:
            return malformed(data, ctx, not_json, what="not JSON")
        return invalid(data, ctx, error, explain(error), what=f"not a valid {type_text(self.type)}")

    def __repr__(self) -> str:
        return "Json()" if self.type is Any else f"Json({type_text(self.type)})"


def _pydantic_codec(type: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    from pydantic import TypeAdapter

    adapter: TypeAdapter[Any] = TypeAdapter(type)

    def encode(value: Any) -> bytes:
        # "error": a field that was set to a wrong type after validation raises, where pydantic's default is a warning.
        return adapter.dump_json(value, by_alias=True, warnings="error")

    return encode, adapter.validate_json


def _json_schema(type: Any) -> str:
    if type is Any:
        raise ConfigError("Json() has no type to make a JSON Schema of; with a registry, give one: Json(Order)")
    if mentions_pydantic(type):
        from pydantic import TypeAdapter

        return json.dumps(TypeAdapter(type).json_schema(by_alias=True))
    union = json_union(type)
    return json.dumps(msgspec.json.schema(type) if union is None else union.schema())


def _first_unencodable(value: Any, encode: Callable[[Any], bytes], path: str = "$") -> str:
    """Return the path of the first part that cannot be encoded, as `$.items[2]`. Runs after a failure only."""
    for name, child in _children(value):
        try:
            encode(child)
        except Exception:
            return _first_unencodable(child, encode, path + name)
    return path


def _not_finite(value: Any, path: str = "$") -> str | None:
    """Return the path of the first number that encoders write as null."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    if hasattr(type(value), "model_fields"):
        if value.model_config.get("ser_json_inf_nan", "null") != "null":
            return None
        value = vars(value)
    for name, child in _children(value):
        if place := _not_finite(child, path + name):
            return place
    return None


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f".{key}", child) for key, child in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{position}]", child) for position, child in enumerate(value))
    elif isinstance(value, msgspec.Struct):
        yield from ((f".{name}", getattr(value, name)) for name in value.__struct_fields__)
    elif dataclasses.is_dataclass(value):
        yield from ((f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value))
