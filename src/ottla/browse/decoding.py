"""`--as` and `--key-as`: what the bytes of a part are, and the plain value in them.

auto      what a registry knows (with --registry), else nothing is decoded
json      JSON
avro      by the registry, or --schema FILE (.avsc)
protobuf  by the registry, or --schema FILE (a descriptor set of protoc) and --message NAME
text      text; what is not UTF-8 is escaped
hex       two digits a byte
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ConfigError, InputError, RegistryUnavailable

if TYPE_CHECKING:
    from ottla.browse.registry_access import RegistryAccess

FORMATS: Final = ("auto", "json", "avro", "protobuf", "text", "hex")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSource:
    """Source of schemas: a registry or a file."""

    registry: str | RegistryAccess | None = None
    file: Path | None = None
    message: str | None = None


class Decoder:
    """Decodes the bytes of one part into `(format, plain value)`; None for undecoded bytes. Counts the failures.
    `written` and `tree` handle JSON with numbers that Python cannot hold: the text to print, and the value to filter
    by."""

    __slots__ = ("_decode", "_tree", "_written", "failures", "first_failure", "is_raw")

    def __init__(
        self,
        decode: Callable[[bytes], tuple[str, Any] | None] | None,
        *,
        written: Callable[[bytes], tuple[str, Any] | None] | None = None,
        tree: Callable[[bytes], tuple[str, Any] | None] | None = None,
    ) -> None:
        self._decode = decode
        self._written = written or decode
        self._tree = tree or decode
        self.is_raw = decode is None
        """Nothing is decoded at all."""
        self.failures = 0
        self.first_failure = ""

    def __call__(self, data: bytes) -> tuple[str, Any] | None:
        """Decode. Raises whatever a decoder raises, and `RegistryUnavailable` for an outage."""
        return self._counted(self._decode, data)

    def written(self, data: bytes) -> tuple[str, Any] | None:
        """Decode for printing: numbers as written in the record."""
        return self._counted(self._written, data)

    def tree(self, data: bytes) -> Any:
        """Return the value alone, to be looked into. Raises as a call does."""
        found = self._counted(self._tree, data)
        return None if found is None else found[1]

    def plain(self, data: bytes) -> Any:
        """Return the value alone, to be printed; the bytes' text where nothing is decoded."""
        found = self.written(data)
        if found is None:
            return data.decode("utf-8", "backslashreplace")
        value = found[1]
        return _text_or_json(value) if found[0] == "json" else value

    def _counted(self, decode: Callable[[bytes], tuple[str, Any] | None] | None, data: bytes) -> tuple[str, Any] | None:
        if decode is None:
            return None
        try:
            return decode(data)
        except RegistryUnavailable:
            raise
        except Exception as error:
            self.failures += 1
            self.first_failure = self.first_failure or f"{type(error).__name__}: {error}"[:300]
            raise


def _text_or_json(value: Any) -> Any:
    """Return the text of a JSON string, and any other value unchanged."""
    import msgspec

    if not isinstance(value, msgspec.Raw):
        return value
    raw = bytes(value)
    return msgspec.json.decode(raw) if raw.startswith(b'"') else value


def decoder_of(form: str, source: SchemaSource, *, option: str = "--as") -> Decoder:
    """Return the decoder that an option names. ConfigError or InputError where a schema is missing, or is none."""
    if form == "auto":
        return Decoder(None if source.registry is None else _framed(source.registry, None))
    if form == "text":
        return Decoder(None)
    if form == "hex":
        return Decoder(lambda data: ("hex", data.hex()))
    if form == "json":
        import msgspec

        from ottla.browse.json_numbers import minified, tree_of

        decode = msgspec.json.Decoder().decode
        return Decoder(
            lambda data: ("json", decode(data)),
            written=lambda data: ("json", minified(data)),
            tree=lambda data: ("json", tree_of(data)),
        )
    if source.file is not None:
        read = _avro_file(source.file) if form == "avro" else protobuf_codec(source.file, source.message)[0]
        return Decoder(lambda data: (form, read(data)))
    if source.registry is not None:
        return Decoder(_framed(source.registry, form))
    raise InputError(f"{option} {form}: found no schema, wanted --registry URL or --schema FILE")


def _framed(registry: str | RegistryAccess, form: str | None) -> Callable[[bytes], tuple[str, Any] | None]:
    from ottla.browse.registry_access import opened_registry
    from ottla.serdes.any_schema import RegistryValues
    from ottla.serdes.wire_format import HEADER_BYTES, MAGIC

    values = RegistryValues(opened_registry(registry))

    def decode(data: bytes) -> tuple[str, Any] | None:
        if form is None and (len(data) < HEADER_BYTES or data[0] != MAGIC):
            return None
        kind, value = values.decode(data)
        if form is not None and kind.lower() != form:
            raise ValueError(f"the registry's schema is {kind}, wanted {form.upper()}")
        return kind.lower(), _plain(value)

    return decode


def _avro_file(path: Path) -> Callable[[bytes], Any]:
    from ottla.serdes.any_schema import plain_reader
    from ottla.serdes.avro_codec import parse
    from ottla.serdes.avro_schema import load_schema

    try:
        schema = load_schema(path)
    except OSError as error:
        raise ConfigError(f"--schema {path}: {error.strerror}") from error
    read = plain_reader(parse(schema))
    return lambda data: _plain(read(data))


def protobuf_codec(path: Path, message: str | None) -> tuple[Callable[[bytes], Any], Callable[[Any], bytes]]:
    """Return reader and writer of a message of a file that `protoc --include_imports -o FILE` wrote."""
    from ottla.serdes.any_schema import add_file, message_reader, message_writer, new_pool

    if message is None:
        raise InputError(f"--schema {path}: found no --message, wanted the message's full name, as in shop.Order")
    pool = new_pool()
    try:
        from google.protobuf import descriptor_pb2

        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file
        for file in files:
            if not file.name.startswith("google/protobuf/"):
                add_file(pool, file.name, file.SerializeToString())
    except OSError as error:
        raise ConfigError(f"--schema {path}: {error.strerror}") from error
    except Exception as error:
        raise ConfigError(f"--schema {path}: wanted what protoc --include_imports -o wrote: {error}") from error
    try:
        descriptor = pool.FindMessageTypeByName(message)
    except KeyError:
        names = [f"{file.package}.{each.name}".lstrip(".") for file in files for each in file.message_type]
        raise ConfigError(f"--message: found {message}, wanted one of {', '.join(names[:20])}") from None
    return message_reader(descriptor), message_writer(descriptor)


def _plain(value: Any) -> Any:
    """Return a value of plain types: dates, times and UUIDs as text, bytes as base64, decimals as they are."""
    import decimal

    import msgspec

    return msgspec.to_builtins(value, builtin_types=(decimal.Decimal,))
