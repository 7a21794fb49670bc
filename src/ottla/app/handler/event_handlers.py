"""The handlers of one subscription by event type: which of them gets a record is chosen before the value is decoded.

All of them are one handler for the rest of Ottla: one route, with one order, one set of retries and one tracker of
offsets. What differs by type is the serde of the value and the function that is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.app.handler.annotations import chosen_serde
from ottla.app.handler.binding import Binding, BindingError, Call, bind
from ottla.app.handler.handler_context import Context
from ottla.app.handler.resources import Resources
from ottla.errors import ConfigError, SerializationError
from ottla.failures.outcomes import Dead, Outcome
from ottla.records import Headers, Malformed, Record
from ottla.serdes import Bytes, Serde, SerdeContext
from ottla.serdes.base import type_name
from ottla.serdes.tags import Tag, TagHeader
from ottla.showing import shown


@dataclass(frozen=True, slots=True, eq=False)
class EventHandler:
    """One function with the serde of its values."""

    call: Call
    serde: Serde[Any]
    binding: Binding | None = None
    """None for what only answers with an outcome."""
    tag: str | None = None
    """The first of its tags; None for what gets the others."""
    function: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHandlers:
    """The handlers of a topic by tag. `otherwise` is the outcome of a record that none of them takes."""

    name: str
    by: Tag
    key: Any = None
    otherwise: Outcome | None = None
    resources: Resources | None = None
    by_tag: Mapping[str, EventHandler] = field(default_factory=dict)
    default: EventHandler | None = None

    def with_handler(self, tags: Sequence[str], function: Callable[..., Any], value: Any) -> EventHandlers:
        """Return the table with another handler. Raises `ConfigError` for a tag that has one."""
        for tag in tags:
            if tag in self.by_tag:
                raise ConfigError(f"{self.name}: {tag!r} has a handler already; one type has one handler")
        handler = self._bound(function, value, tag=tags[0])
        return replace(self, by_tag={**self.by_tag, **dict.fromkeys(tags, handler)})

    def with_default(self, function: Callable[..., Any], value: Any) -> EventHandlers:
        """Return the table with a handler for the types that have none."""
        if self.default is not None:
            raise ConfigError(f"{self.name}: it has an otherwise handler already")
        if self.otherwise is not None:
            raise ConfigError(f"{self.name}: found otherwise={self.otherwise!r} and a handler for the same, wanted one")
        return replace(self, default=self._bound(function, value, tag=None))

    def within(self, resources: Resources) -> EventHandlers:
        """Return these handlers for another app, which opens their resources."""
        bound: dict[EventHandler, EventHandler] = {}
        for each in self.handlers:
            assert each.function is not None
            binding = bind(each.function, is_batch=False, resources=resources)
            bound[each] = replace(each, binding=binding, call=binding.call)
        return replace(
            self,
            resources=resources,
            by_tag={tag: bound[handler] for tag, handler in self.by_tag.items()},
            default=None if self.default is None else bound[self.default],
        )

    def _bound(self, function: Callable[..., Any], value: Any, *, tag: str | None) -> EventHandler:
        binding = bind(function, is_batch=False, resources=self.resources)
        name = getattr(function, "__qualname__", repr(function))
        if binding.wants_malformed:
            raise BindingError(
                f"{name}: found an annotation with Malformed, wanted none: a value that cannot be decoded is a dead "
                "letter, whichever its type"
            )
        try:
            serde = chosen_serde(value, binding.value_hint)
        except TypeError as error:
            raise BindingError(f"{name}: {error}") from None
        for other in self.handlers:
            if other.binding is not None and other.binding.is_async != binding.is_async:
                raise ConfigError(
                    f"{self.name}: found async def and def beside each other, wanted one of them for all types: they "
                    "are handled in one order"
                )
        return EventHandler(binding.call, serde, binding, tag, function)

    @property
    def handlers(self) -> list[EventHandler]:
        """Each handler once, in the order of their declaration."""
        found = dict.fromkeys(self.by_tag.values())
        return [*found, *(() if self.default is None else (self.default,))]

    @property
    def key_hint(self) -> Any:
        """Return the annotation of the key. Raises `BindingError` where they do not agree."""
        hints = [each.binding.key_hint for each in self.handlers if each.binding is not None]
        said = [hint for hint in hints if hint is not Any]
        if any(hint != said[0] for hint in said):
            raise BindingError(f"{self.name}: its handlers annotate the key differently; all get the same key")
        return said[0] if said else Any

    @property
    def serde(self) -> EventSerde:
        """The serde of all types together, for tests that deliver values."""
        return EventSerde(self)

    def binding(self) -> Binding:
        """Return all of them as one handler."""
        bindings = [each.binding for each in self.handlers if each.binding is not None]
        is_async = any(each.is_async for each in bindings)
        choose = self.chooser(self.handler_of_others(is_async=is_async))

        def call(subject: Any, context: Context) -> Any:
            try:
                chosen = context._run.chosen[subject]  # type: ignore[index,union-attr]  # a run that was decoded
            except KeyError:  # a copy, of a middleware or out of a retry topic
                handler = choose(subject)
                if isinstance(handler, Malformed):
                    raise SerializationError(handler.error) from None
                chosen = handler.call
            return chosen(subject, context)

        return Binding(
            call=call,
            is_async=is_async,
            wants_malformed=False,
            wants_transaction=any(each.wants_transaction for each in bindings),
            wants_out=any(each.wants_out for each in bindings),
            opens_per_run=any(each.opens_per_run for each in bindings),
        )

    def handler_of_others(self, *, is_async: bool) -> EventHandler:
        """Return the handler of records of other types: the declared one, or one that returns the declared outcome."""
        return self.default or EventHandler(self._answer(is_async=is_async), Bytes())

    def chooser(self, default: EventHandler) -> Callable[[Record[Any]], EventHandler | Malformed]:
        """Return what chooses the handler of a record."""
        tag_of, by_tag = self.by.tag_of, dict(self.by_tag)

        def choose(record: Record[Any]) -> EventHandler | Malformed:
            tag = tag_of(record)
            if tag is None or tag.__class__ is str:
                return by_tag.get(tag, default)  # type: ignore[arg-type]
            return tag  # type: ignore[return-value]

        return choose

    def _answer(self, *, is_async: bool) -> Call:
        outcome, tag_of = self.otherwise, self.by.tag_of

        def answer(subject: Any, context: Context) -> Any:
            if outcome is not None:
                return outcome
            return Dead(f"no handler for an event of the type {shown(tag_of(subject))}")

        async def answer_async(subject: Any, context: Context) -> Any:
            return answer(subject, context)

        return answer_async if is_async else answer

    def tagged(self, value: Any, headers: Headers) -> Headers:
        """Return the headers that a value of a test gets where it was given no tag: that of its type."""
        if not isinstance(self.by, TagHeader) or any(name == self.by.name for name, _ in headers):
            return headers
        handler = None if value is None or isinstance(value, bytes) else self.handler_of(value)
        return headers if handler is None or handler.tag is None else [*headers, (self.by.name, handler.tag.encode())]

    def handler_of(self, value: Any) -> EventHandler | None:
        """Return the only handler that takes values of this class; None for none, and for several."""
        fitting = [each for each in self.handlers if each.serde.value_type is type(value)]
        return fitting[0] if len(fitting) == 1 else None

    def most_common(self, tags: Sequence[str | None]) -> str:
        """Return the most common type without a handler, for the log."""
        return shown(Counter(tags).most_common(1)[0][0])


class EventSerde(Serde[Any]):
    """Encodes a value as the handler of its class decodes it. Decoding goes by the tag, which is not in the bytes."""

    __slots__ = ("_events",)

    def __init__(self, events: EventHandlers) -> None:
        self._events = events

    def serialize(self, value: Any, ctx: SerdeContext) -> bytes | None:
        handler = self._events.handler_of(value)
        if handler is None:
            raise SerializationError(
                f"{ctx.topic} {ctx.part}: {type_name(value)} is the value of no handler, or of several; deliver bytes"
            )
        return handler.serde.serialize(value, ctx)

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> Any:
        return data

    def __repr__(self) -> str:
        return f"EventSerde({', '.join(map(repr, self._events.by_tag))})"
