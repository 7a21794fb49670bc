"""Decodes the values and keys of runs. A value that cannot be decoded is `Malformed`, and fails its record alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, Final, TypeAlias, TypedDict, Unpack

from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.errors import RegistryUnavailable
from ottla.failures.exceptions import ExceptionTable, Failure
from ottla.records import Malformed
from ottla.serdes import Bytes, Serde, SerdeContext
from ottla.serdes.base import type_name

_PART_RECORDS: Final = 100
"""How many values are decoded ahead of a handler that takes only values. The garbage collector runs after 700
allocations and moves survivors to an older generation; 2,000 values decoded together survive it. That cost a tenth of
the CPU of a record."""

_LEAST_RECORDS: Final = 8
"""How many records are decoded at first before it is seen how long that takes."""

YIELD_EVERY_S: Final = 0.004
"""An event loop that is kept longer than a few milliseconds stops answering its heartbeats and its neighbours."""

Yield: TypeAlias = Callable[[], Awaitable[None]]
"""Lets the event loop breathe."""


class DecoderParts(TypedDict):
    """What a decoder has beside the serde of its values."""

    key: Serde[Any]
    exceptions: ExceptionTable
    fails_in_order: bool
    """Whether a registry that does not answer fails the first record of a run, so that the others wait behind it, or
    all of them."""
    origins: Mapping[str, str]
    """Retry topic → the topic of its records."""


class RunDecoder:
    """The serdes of one handler. Thread-safe."""

    __slots__ = (
        "_bytes_only",
        "_contexts",
        "_exceptions",
        "_fails_in_order",
        "_key",
        "_keys_are_bytes",
        "_origins",
        "_value",
        "has_parts",
        "may_block",
    )

    def __init__(
        self,
        *,
        value: Serde[Any],
        **parts: Unpack[DecoderParts],
    ) -> None:
        self._value = value
        self._key = key = parts["key"]
        self._exceptions = parts["exceptions"]
        self._fails_in_order = parts["fails_in_order"]
        self._origins = parts["origins"]
        self._contexts: dict[str, tuple[SerdeContext, SerdeContext]] = {}
        self._keys_are_bytes = type(key) is Bytes
        self._bytes_only = self._keys_are_bytes and type(value) is Bytes
        self.may_block = any(type(serde).would_block is not Serde.would_block for serde in (key, value))
        """Whether decoding may wait for the network."""
        # Keys are decoded, too, as a malformed one is a failure of its record.
        self.has_parts = self._keys_are_bytes and not self._bytes_only
        """A handler that takes only values may be given those of `parts`."""

    def would_block(self, run: Run) -> bool:
        """Return whether decoding waits for the network (a schema id that was never seen)."""
        if self._bytes_only:
            return False
        value_context, key_context = self._serde_contexts(run)
        return self._value.would_block([record.raw_value for record in run.records], value_context) or (
            self._key.would_block([record.raw_key for record in run.records], key_context)
        )

    def decode(self, run: Run, part: Sequence[AnyRecord] | None = None) -> tuple[bool, RunResult | None]:
        """Decode the run, or a part of it, in place. Returns whether anything is malformed, and a result when decoding
        must wait.

        Always from the raw bytes: a handler that changed its value before it failed gets a fresh one at the retry.
        """
        records = run.records if part is None else part
        if self._bytes_only:
            for record in () if run.is_first else records:
                record.value = record.raw_value
                record.key = record.raw_key
            return False, None
        value_context, key_context = self._serde_contexts(run)
        try:
            has_malformed = self._decode_values(run, records, value_context)
            if not (run.is_first and self._keys_are_bytes):
                has_malformed |= self._decode_keys(records, key_context)
        except RegistryUnavailable as error:
            return False, self._outage(run, error)
        return has_malformed, None

    async def decode_on_loop(self, run: Run, yield_now: Yield) -> tuple[bool, RunResult | None]:
        """Decode the run as `decode` does, in parts: the event loop is kept for some milliseconds at a time."""
        if self._bytes_only:
            return self.decode(run)
        has_malformed, begin, size = False, 0, _LEAST_RECORDS
        breathe_at_s = monotonic() + YIELD_EVERY_S
        while begin < len(run.records):
            is_malformed, result = self.decode(run, run.records[begin : begin + size])
            if result is not None:
                return False, result
            has_malformed |= is_malformed
            begin += size
            if monotonic() > breathe_at_s:
                await yield_now()
                breathe_at_s = monotonic() + YIELD_EVERY_S
            else:
                size *= 2
        return has_malformed, None

    def decode_newest(self, run: Run) -> None:
        """Decode the record that a run has grown by, in place. Raises `RegistryUnavailable`."""
        record = run.records[-1]
        if self._bytes_only:
            record.value, record.key = record.raw_value, record.raw_key
            return
        value_context, key_context = self._serde_contexts(run)
        decode_values((record,), self._value, value_context)
        self._decode_keys((record,), key_context)

    def parts(self, run: Run) -> Iterator[tuple[Sequence[AnyRecord], list[Any] | None]]:
        """Yield (records, values) for each part of a run. A part is decoded when it is asked for.

        `values` is None if one of them is malformed; then each record of the part has its own value, decoded. Raises
        `RegistryUnavailable`.
        """
        context, _ = self._serde_contexts(run)
        records, serde = run.records, self._value
        for begin in range(0, len(records), _PART_RECORDS):
            part = records[begin : begin + _PART_RECORDS]
            values = serde.deserialize_records(part, context)
            if Malformed in set(map(type, values)):
                _keep_values(part, values, serde)
                yield part, None
            else:
                yield part, values

    def decode_rest(self, run: Run, records: Sequence[AnyRecord]) -> Failure | None:
        """Decode the last records of a run that is decoded in parts. Returns why that is not possible now."""
        context, _ = self._serde_contexts(run)
        try:
            decode_values(records, self._value, context)
        except RegistryUnavailable as error:
            return self._exceptions.failure_of(error)
        return None

    def _decode_values(self, run: Run, records: Sequence[AnyRecord], context: SerdeContext) -> bool:
        """Decode values of a run in place. Returns whether one is malformed."""
        return decode_values(records, self._value, context)

    def _decode_keys(self, records: Sequence[AnyRecord], context: SerdeContext) -> bool:
        """Decode keys in place. Returns whether one is malformed."""
        if self._keys_are_bytes:  # as they came; a handler may have changed them before it failed
            for record in records:
                record.key = record.raw_key
            return False
        keys = self._key.deserialize_many([record.raw_key for record in records], context)
        has_malformed = Malformed in set(map(type, keys))
        found = _with_serde_name(keys, self._key) if has_malformed else keys
        for record, key in zip(records, found, strict=True):
            record.key = key
        return has_malformed

    def _serde_contexts(self, run: Run) -> tuple[SerdeContext, SerdeContext]:
        topic = run.topic_partition.topic
        contexts = self._contexts.get(topic)
        if contexts is None:
            origin = self._origins.get(topic, topic)  # a retry topic's records have the schemas of their own topic
            contexts = self._contexts[topic] = (SerdeContext(origin, "value"), SerdeContext(origin, "key"))
        return contexts

    def _outage(self, run: Run, error: RegistryUnavailable) -> RunResult:
        failure = self._exceptions.failure_of(error)
        if self._fails_in_order:
            return RunResult(done=(), failures=[(run.records[0], failure)], untouched=run.records[1:])
        return RunResult(done=(), failures=[(record, failure) for record in run.records])


def malformed_part(record: AnyRecord) -> Malformed | None:
    """Return the part of a record that could not be decoded, if there is one."""
    if type(record.value) is Malformed:
        return record.value
    return record.key if type(record.key) is Malformed else None


def decode_values(records: Sequence[AnyRecord], serde: Serde[Any], context: SerdeContext) -> bool:
    """Decode values in place. Returns whether one is malformed."""
    return _keep_values(records, serde.deserialize_records(records, context), serde)


def _keep_values(records: Sequence[AnyRecord], values: list[Any], serde: Serde[Any]) -> bool:
    """Set the values of records. Returns whether one is malformed."""
    has_malformed = Malformed in set(map(type, values))
    found = _with_serde_name(values, serde) if has_malformed else values
    for record, value in zip(records, found, strict=True):
        record.value = value
    return has_malformed


def _with_serde_name(decoded: list[Any], serde: Serde[Any]) -> list[Any]:
    """Return the failures with the serde's name in what it could not decode."""
    name = type_name(serde)
    return [replace(each, serde=name) if type(each) is Malformed else each for each in decoded]
