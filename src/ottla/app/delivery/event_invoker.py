"""Delivers a run to handlers by event type: the decoder is chosen for each record."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Unpack

from ottla.app.delivery.invoker import InvokerParts
from ottla.app.delivery.pending_sends import AwaitingAcks, AwaitingAcksOnLoop
from ottla.app.delivery.record_invoker import RecordInvoker
from ottla.app.delivery.run_decoder import DecoderParts, RunDecoder, Yield, decode_values
from ottla.app.handler.binding import Call
from ottla.app.handler.event_handlers import EventHandler, EventHandlers
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.records import Malformed
from ottla.serdes import Serde, SerdeContext
from ottla.telemetry import Listeners, log_event


class EventDecoder(RunDecoder):
    """Decodes by event type. Values are decoded together that have one handler, so a run of one type costs one call."""

    __slots__ = ("_default", "_events", "_may_block")

    def __init__(self, events: EventHandlers, *, is_async: bool, **parts: Unpack[DecoderParts]) -> None:
        super().__init__(value=events.serde, **parts)
        self._events = events
        self._default = events.handler_of_others(is_async=is_async)
        self._may_block = any(type(each.serde).would_block is not Serde.would_block for each in events.handlers)
        self._bytes_only = self.has_parts = False  # the handler is chosen by the record

    @property
    def answer(self) -> Call | None:
        """The call for records of other types, where no handler takes them."""
        return self._default.call if self._default.binding is None else None

    def would_block(self, run: Run) -> bool:
        values = [record.raw_value for record in run.records]
        if self._events.by.would_block(values):
            return True
        value_context, key_context = self._serde_contexts(run)
        if self._may_block:
            for handler, records in self._groups(run, run.records)[0].items():
                if handler.serde.would_block([record.raw_value for record in records], value_context):
                    return True
        return self._key.would_block([record.raw_key for record in run.records], key_context)

    def _decode_values(self, run: Run, records: Sequence[AnyRecord], context: SerdeContext) -> bool:
        groups, has_malformed = self._groups(run, records)
        for handler, records in groups.items():
            has_malformed |= decode_values(records, handler.serde, context)
        return has_malformed

    def _groups(self, run: Run, records: Sequence[AnyRecord]) -> tuple[dict[EventHandler, Sequence[AnyRecord]], bool]:
        """Return records of the run by handler, and whether the type of some cannot be read."""
        by_tag, default = self._events.by_tag, self._default
        if run.chosen is None:
            run.chosen = {}
        tags = self._events.by.tags_of(records)
        first = tags[0] if tags else None
        if first.__class__ is not Malformed and tags.count(first) == len(tags):  # one type: no loop over records
            handler = by_tag.get(first, default)  # type: ignore[arg-type]
            run.chosen |= dict.fromkeys(records, handler.call)
            return {handler: records}, False
        by_type: dict[str | Malformed | None, list[AnyRecord]] = {}
        for record, tag in zip(records, tags, strict=True):
            try:
                by_type[tag].append(record)
            except KeyError:
                by_type[tag] = [record]
        groups, has_malformed = dict[EventHandler, list[AnyRecord]](), False
        for tag, of_type in by_type.items():
            if isinstance(tag, Malformed):
                for record in of_type:
                    record.value, has_malformed = tag, True
                continue
            handler = by_tag.get(tag, default)  # type: ignore[arg-type]
            run.chosen.update(zip(of_type, repeat(handler.call), strict=False))
            groups.setdefault(handler, []).extend(of_type)
        return groups, has_malformed  # type: ignore[return-value]


class EventInvoker(RecordInvoker):
    """See the module."""

    __slots__ = ("_answer", "_events", "_hooks")

    def __init__(
        self, events: EventHandlers, hooks: Listeners, *, decoder: EventDecoder, **parts: Unpack[InvokerParts]
    ) -> None:
        super().__init__(decoder=decoder, **parts)
        self._events = events
        self._hooks = hooks
        self._answer = decoder.answer

    def deliver(self, run: Run) -> RunResult | AwaitingAcks:
        result = super().deliver(run)
        self._note_unhandled(run)
        return result

    async def deliver_async(self, run: Run, yield_now: Yield) -> RunResult | AwaitingAcksOnLoop:
        result = await super().deliver_async(run, yield_now)
        self._note_unhandled(run)
        return result

    def _note_unhandled(self, run: Run) -> None:
        """Log and count the records that no handler takes. Once for each delivery: an inbox decodes a run twice."""
        chosen, answer = run.chosen, self._answer
        if answer is None or not chosen or answer not in chosen.values():
            return
        records = [record for record in run.records if chosen.get(record) is answer]
        tags = self._events.by.tags_of(records)
        fields = {
            "group": self._group,
            "handler": self.name,
            "partition": str(run.topic_partition),
            "offset": records[0].offset,
            "records": len(records),
            "type": self._events.most_common([tag for tag in tags if not isinstance(tag, Malformed)]),
        }
        log_event("event_type_unhandled", "info", fields)
        if self._hooks.refresh():
            self._hooks.event(group=self._group, event="event_type_unhandled")
