"""Serdes on their way to workers, as bytes that make them again there.

A serde may hold compiled decoders that cannot be pickled. What it was made from can: a type, a schema. Classes of a
script or a notebook travel by value (cloudpickle), classes of an installed module by name.
"""

from __future__ import annotations

import dataclasses
import inspect
import io
import pickle
import typing
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from ottla.columnar.values.decoding import has_rules
from ottla.errors import ConfigError
from ottla.serdes import Avro, Bytes, Int64, Json, Protobuf, Serde, Str, as_serde
from ottla.serdes.models import is_model

Recipe: TypeAlias = Callable[[], Serde[Any]]

_MSGSPEC_CACHE = "__msgspec_cache__"


def recipe_of(given: Serde[Any] | type | Callable[[], Serde[Any]]) -> Recipe:
    """Return a function that makes this serde and that can be pickled from its name and bytes alone."""
    serde: Any = given if callable(given) and not isinstance(given, type) else as_serde(given)
    maker: Any = serde if not isinstance(serde, Serde) else _maker_of(serde)
    try:
        data = dumps(maker)
        pickle.loads(data)
    except Exception as error:
        raise ConfigError(
            f"{serde!r} cannot be sent to Spark's workers ({error}); pass a function that creates it: value=lambda: ..."
        ) from error
    return partial(_made, data)


def dumps(value: object) -> bytes:
    """Return `value` as bytes for another process."""
    from pyspark import cloudpickle

    untyped: Any = cloudpickle.Pickler

    class Pickler(untyped):  # type: ignore[misc]
        """cloudpickle copies the mark of dataclass fields without a default, and a copy is no longer the mark."""

        def reducer_override(self, obj: Any) -> Any:
            return "MISSING" if obj is dataclasses.MISSING else super().reducer_override(obj)

    stream = io.BytesIO()
    Pickler(stream).dump(value)
    return stream.getvalue()


def make_portable(kind: Any, seen: set[Any] | None = None) -> None:
    """Prepare a class, and the classes of its fields, for travelling by value, without its module.

    Annotations that are text (`from __future__ import annotations`) become types: nobody over there could say what
    `Order` means. What msgspec keeps in the class for itself is dropped: it is made again when needed.
    """
    seen = set() if seen is None else seen
    for argument in typing.get_args(kind):
        make_portable(argument, seen)
    if not isinstance(kind, type) or kind in seen or not is_model(kind):
        return
    seen.add(kind)
    hints = typing.get_type_hints(kind, include_extras=True)
    own = inspect.get_annotations(kind)
    if any(isinstance(annotation, str) for annotation in own.values()):
        kind.__annotations__ = {name: hints[name] for name in own}
    if _MSGSPEC_CACHE in vars(kind):
        delattr(kind, _MSGSPEC_CACHE)
    for hint in hints.values():
        make_portable(hint, seen)


def _made(data: bytes) -> Serde[Any]:
    """Return the serde in the worker. The bytes hold the serde, or a function that makes it."""
    unpickled = pickle.loads(data)
    serde: Serde[Any] = unpickled if isinstance(unpickled, Serde) else unpickled()
    return serde


def _maker_of(serde: Serde[Any]) -> Any:
    if type(serde) is Json and serde._framing is None and not serde.has_decoding_hook:
        make_portable(serde.type)
        return partial(Json, serde.type)
    if type(serde) is Avro and serde._framing is None:
        if serde.writer_schema is None and not has_rules(serde.type):
            return partial(Avro, serde.schema)  # the columns come from the schema alone
        make_portable(serde.type)
    if type(serde) in (Bytes, Str, Int64):
        return type(serde)
    if type(serde) is Protobuf and serde._framing is None:
        descriptor = serde.message.DESCRIPTOR
        return partial(_protobuf, _files_of(descriptor.file), descriptor.full_name, serde._check)
    return serde


def _files_of(file: Any) -> tuple[bytes, ...]:
    """Return a file and all that it imports, imports first."""
    files: dict[str, bytes] = {}

    def add(current: Any) -> None:
        for imported in current.dependencies:
            add(imported)
        files.setdefault(current.name, current.serialized_pb)

    add(file)
    return tuple(files.values())


def _protobuf(files: tuple[bytes, ...], name: str, check: Any) -> Serde[Any]:
    """Return the serde of a message class, made again from its files: the generated module need not be where workers
    are."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file)
    return Protobuf(message_factory.GetMessageClass(pool.FindMessageTypeByName(name)), check=check)
