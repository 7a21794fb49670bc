"""What may be sent as it is: bytes. Anything else needs a serde, and the error says so, the same in both shells.

Both clients are given only what was checked here. confluent-kafka ends the process (SIGSEGV) at a header name that is
no UTF-8, and cuts one at its first NUL; aiokafka has counted a record before it finds that it cannot be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, Final

from ottla.errors import InputError, SerializationError
from ottla.producer.size import FIXED_BYTES
from ottla.records import Header, Headers, topic_problem
from ottla.showing import shown
from ottla.topics import text_problem

_MOST_PARTITION: Final = 2**31 - 1
_MOST_TIMESTAMP_MS: Final = 2**63 - 1

_MOST_NAMES: Final = 1_024
_LONGEST_NAME: Final = 128
_good_names: set[str] = set()
"""Names of headers that were checked: a service has a few. Looking one up costs what the check of its class did."""


def check_topic(topic: object) -> None:
    """Raise InputError for an invalid topic name. Checked once per topic, before any request about it."""
    problem = topic_problem(topic)
    if problem is not None:
        raise InputError(problem)


def topic_name(topic: Any) -> str:
    """Return a topic's name as plain `str`, from a subclass of it (`Priorities`, an enum), because clients check the
    class. Raises InputError for other types."""
    if not isinstance(topic, str):
        check_topic(topic)
    return str.__str__(topic)


def as_bytes(topic: str, part: str, value: Any) -> bytes:
    """Return bytes from anything with the buffer protocol; SerializationError for what needs a serde."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationError(
        f"{topic} {part}: expected bytes, got {type(value).__name__}; give the producer a serde: "
        f"Producer(..., {part}=str), Json(...), Avro(...)"
    )


def encoded(
    topic: str, key: Any, value: Any, headers: Headers | None
) -> tuple[bytes | None, bytes | None, list[Header], int]:
    """Return (key, value, headers as clients take them, at most so many bytes of a record). Raises
    SerializationError."""
    # The hot path of every send: one call, and no other inside it where all is as it should be.
    most = FIXED_BYTES
    if value is not None:
        if value.__class__ is not bytes:
            value = as_bytes(topic, "value", value)
        most += len(value)
    if key is not None:
        if key.__class__ is not bytes:
            key = as_bytes(topic, "key", key)
        most += len(key)
    if not headers:
        return key, value, [], most
    names = contents = 0
    are_plain = True
    try:
        listed: list[Header] = headers if headers.__class__ is list else list(headers)
        for name, content in listed:
            if name.__class__ is not str or name not in _good_names:
                check_header_name(topic, name, content)
                are_plain = are_plain and name.__class__ is str
            names += len(name)
            if content.__class__ is bytes:
                contents += len(content)
            elif content is not None:
                raise bad_header(topic, name, content)
    except (TypeError, ValueError) as error:
        raise bad_headers(topic, headers, error) from None
    if not are_plain:  # confluent-kafka writes what `str()` makes of an enum ("Name.TRACE"), aiokafka refuses it
        listed = [(str.__str__(name), content) for name, content in listed]
    return key, value, listed, most + 10 * len(listed) + 4 * names + contents  # a character is at most 4 bytes of UTF-8


def check_header_name(topic: str, name: Any, content: object) -> None:
    """Raise SerializationError for what cannot be the name of a header."""
    if not isinstance(name, str):
        raise bad_header(topic, name, content)
    problem = text_problem(name)
    if problem is not None:
        raise SerializationError(f"{topic}: header {name!r:.200}: {problem}")
    if name.__class__ is str and len(name) <= _LONGEST_NAME:
        if len(_good_names) >= _MOST_NAMES:
            _good_names.clear()
        _good_names.add(name)


def placed(topic: str, partition: Any, timestamp_ms: Any) -> tuple[int | None, int | None]:
    """Return a (partition, timestamp) that both clients interpret alike, or raise InputError. librdkafka takes the
    partition -1 for "any" and the timestamp 0 for "now"; aiokafka writes both literally. Neither is what the caller
    meant, so both are refused."""
    # What is right already costs no call, which would be 4 % of a send.
    if partition is not None and (partition.__class__ is not int or not 0 <= partition <= _MOST_PARTITION):
        partition = _number(topic, "partition", partition, 0, _MOST_PARTITION, "leave it out for the partitioner")
    if timestamp_ms is not None and (timestamp_ms.__class__ is not int or not 1 <= timestamp_ms <= _MOST_TIMESTAMP_MS):
        advice = "milliseconds since the Unix epoch; leave it out for now"
        timestamp_ms = _number(topic, "timestamp_ms", timestamp_ms, 1, _MOST_TIMESTAMP_MS, advice)
    return partition, timestamp_ms


def _number(topic: str, name: str, given: Any, least: int, most: int, advice: str) -> int:
    try:
        number = None if isinstance(given, bool) else index(given)  # numpy's integers are numbers as well
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        bounds = f"from {least}" if number is None or number < least else f"up to {most}"
        raise InputError(f"{topic}: {name}: found {shown(given, 100)}, wanted a whole number {bounds} ({advice})")
    return number


def header_list(topic: str, headers: Headers) -> tuple[list[Header], int]:
    """Return headers as clients take them, and how many bytes of a record they are at most. Raises
    SerializationError."""
    _, _, listed, most = encoded(topic, None, None, headers)
    return listed, most - FIXED_BYTES


def checked_headers(topic: str, key: bytes | None, headers: Headers) -> tuple[list[Header], int]:
    """Return headers as clients take them, and how many bytes a record with this key is at most without its value.
    Raises SerializationError."""
    _, _, listed, most = encoded(topic, key, None, headers)
    return listed, most


def bad_header(topic: str, name: object, content: object) -> SerializationError:
    """Return the error for a header whose name is not text, or whose value is not bytes."""
    if not isinstance(name, str):
        return SerializationError(f"{topic}: header {name!r}: expected a name of type str, got {type(name).__name__}")
    return SerializationError(f"{topic}: header {name}: expected bytes or None, got {type(content).__name__}")


def bad_headers(topic: str, headers: object, error: Exception) -> SerializationError:
    """Return the error for headers that are not a list of pairs; `error` is the exception of reading them."""
    if isinstance(error, SerializationError):
        return error
    advice = "; write list(headers.items())" if isinstance(headers, Mapping) else ""
    return SerializationError(f"{topic}: headers: expected (name, value) pairs, got {headers!r:.200}{advice}")


def bad_arguments(topic: str, headers: Any, error: Exception, **arguments: object) -> InputError:
    """Return the error for what the client refuses to take, with the arguments that it may mean."""
    for pair in headers or ():
        if not isinstance(pair, tuple):
            return SerializationError(f"{topic}: headers: expected (name, value) pairs as tuples, got {headers!r:.200}")
    shown = ", ".join(f"{name}={value!r:.100}" for name, value in arguments.items())
    return InputError(f"{topic}: found {shown}, which the client does not take: {error}")
