"""From lines of input to records to write: plain lines, or JSON as `ottla consume --format json` prints it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.browse.record_json import parse_record
from ottla.errors import InputError
from ottla.records import Header


class InputRecord(NamedTuple):
    """A record to write, and the line it came from. `partition` None: the key decides; `timestamp_ms` None: now."""

    line: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    timestamp_ms: int | None


Encode = Callable[[Any], bytes]
"""A plain value to bytes. Raises ValueError, TypeError or an OttlaError saying what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Encoders:
    """How plain values become bytes: `declared` by `--as`, or by the name that a line gives (`value_as`)."""

    declared: Encode | None = None
    named: Mapping[str, Encode]

    def of(self, name: str | None, option: str) -> Encode | None:
        """Return None: the part is bytes as it is."""
        if name is None or (name == "json" and self.declared is not None):
            return self.declared
        found = self.named.get(name)
        if found is None:
            raise InputError(f"found {name}, wanted {option} {name} with --schema or --registry, to encode it")
        return found


@dataclass(frozen=True, kw_only=True)
class Given:
    """Fields that the command line sets for every record."""

    key: bytes | None = None
    separator: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    null: bytes | None = None
    """Keys and values of plain lines that are this text are null."""
    is_json: bool = False
    follows_partitions: bool = True
    """Records as JSON go to the partition that they name."""
    keys: Encoders
    values: Encoders

    def record(self, number: int, line: bytes) -> InputRecord | None:
        """Return the record of a line; None for a blank line between records as JSON. InputError names the line."""
        try:
            return self._of_json(number, line) if self.is_json else self._of_text(number, line)
        except InputError as error:
            raise InputError(f"line {number}: {error}") from None

    def _of_text(self, number: int, line: bytes) -> InputRecord:
        key: bytes | None = self.key
        value: bytes | None = line
        if self.separator is not None:
            first, found, rest = line.partition(self.separator)
            if not found:
                raise InputError(f"found no {self.separator!r}, wanted a key, the separator and a value")
            key, value = first, rest
        key = _encoded(None if key == self.null and self.null is not None else key, self.keys.declared, "key")
        value = _encoded(None if value == self.null and self.null is not None else value, self.values.declared, "value")
        return InputRecord(number, key, value, self.headers, self.partition, None)

    def _of_json(self, number: int, line: bytes) -> InputRecord | None:
        if not line.strip():
            return None
        given = parse_record(line)
        key = _encoded(given.key, self.keys.of(given.key_as, "--key-as") if given.key_as else None, "key")
        value = _encoded(given.value, self.values.of(given.value_as, "--as") if given.value_as else None, "value")
        partition = given.partition if self.partition is None and self.follows_partitions else self.partition
        headers = given.headers + self.headers
        return InputRecord(number, self.key if key is None else key, value, headers, partition, given.timestamp_ms)


def _encoded(part: Any, encode: Encode | None, name: str) -> bytes | None:
    if part is None or encode is None:
        return part  # type: ignore[no-any-return]  # bytes, where nothing is to be encoded
    try:
        return encode(part)
    except (InputError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{name}: {error}") from None
