"""`--as` and `--key-as` of `ottla produce`: how a text, or a JSON value, becomes the bytes of a part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ottla.browse.decoding import SchemaSource, protobuf_codec
from ottla.browse.json_numbers import to_json
from ottla.browse.record_input import Encode, Encoders
from ottla.errors import ConfigError, InputError


def encoders_of(form: str, source: SchemaSource, *, subject: str, option: str) -> Encoders:
    """Return what encodes one part. A registry's schema is the latest of the subject. Raises `InputError` or
    `ConfigError` where a schema is missing, or is none."""
    named: dict[str, Encode] = {"json": _json_bytes, "hex": _hex_bytes}
    if form in ("auto", "text"):
        return Encoders(named=named)
    if form == "json":
        return Encoders(named=named, declared=_checked_json)
    if form == "hex":
        return Encoders(named=named, declared=_hex_bytes)
    encode = _by_schema(form, source, subject, option)
    return Encoders(named={**named, form: encode}, declared=encode)


def _by_schema(form: str, source: SchemaSource, subject: str, option: str) -> Encode:
    prefix = b""
    if source.registry is not None:
        from ottla.browse.registry_access import opened_registry
        from ottla.serdes.registry import UnknownSchema

        registry = opened_registry(source.registry)
        try:
            found = registry.version(subject)
        except UnknownSchema as error:
            raise ConfigError(f"{option} {form}: {error}") from None
        if found.type.lower() != form:
            raise ConfigError(f"{option} {form}: the schema of {subject} is {found.type}, wanted {form.upper()}")
        from ottla.serdes.any_schema import RegistryValues
        from ottla.serdes.wire_format import header

        prefix = header(found.id)
        if source.file is None:
            return _from_plain(RegistryValues(registry).encoder(found, source.message))
    if source.file is None:
        raise InputError(f"{option} {form}: found no schema, wanted --registry URL or --schema FILE")
    if form == "protobuf":
        if prefix:
            raise InputError(f"{option} protobuf: found --registry and --schema, wanted one of them")
        return _from_plain(protobuf_codec(source.file, source.message)[1])
    from ottla.serdes.any_schema import avro_encoder
    from ottla.serdes.avro_schema import load_schema

    try:
        encode = avro_encoder(load_schema(source.file))
    except OSError as error:
        raise ConfigError(f"--schema {source.file}: {error.strerror}") from error
    return _from_plain(lambda value: encode(value, prefix))


def _from_plain(encode: Callable[[Any], bytes]) -> Encode:
    """Encode the JSON value in a text."""
    return lambda part: encode(_parsed(part if isinstance(part, bytes) else _json_bytes(part)))


def _parsed(part: bytes, kind: Any = Any) -> Any:
    try:
        return msgspec.json.decode(part, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"wanted JSON: {error}") from None


def _checked_json(part: Any) -> bytes:
    if not isinstance(part, bytes):
        return _json_bytes(part)
    _parsed(part, msgspec.Raw)  # is it JSON at all: numbers may be any
    return part


def _json_bytes(value: Any) -> bytes:
    return to_json(value)


def _hex_bytes(part: Any) -> bytes:
    text = part.decode("utf-8", "replace") if isinstance(part, bytes) else part
    if not isinstance(text, str):
        raise InputError("wanted hexadecimal digits as text")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InputError(f"found {text[:40]!r}, wanted hexadecimal digits, two a byte") from None
