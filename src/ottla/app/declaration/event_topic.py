"""`App.topic`: handlers by event type, in one subscription.

orders = app.topic("orders", by=TagHeader("ce_type"), ordering="key", concurrency=8)

@orders.on("order.created", value=Json(Created))
def on_created(order: Created) -> None: ...

@orders.otherwise
def on_other(record: Record[bytes]) -> None: ...
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from ottla.app.declaration.declaring import Declares
from ottla.app.handler.event_handlers import EventHandlers
from ottla.app.handler.handler_function import refuse_generators
from ottla.app.handler.handler_options import ForOne, TopicOptions, Value
from ottla.config.arguments import explained
from ottla.errors import ConfigError
from ottla.failures.outcomes import Dead, Skip
from ottla.serdes.base import SerdeOf
from ottla.serdes.tags import Tag
from ottla.showing import shown

if TYPE_CHECKING:
    from ottla.app.declaration.route import Route

F = TypeVar("F", bound=Callable[..., Any])


class EventTopic:
    """Topics of which each event type has a handler of its own. Made by `App.topic`."""

    def __init__(
        self,
        app: DeclaresEvents,
        topics: tuple[str, ...],
        *,
        by: Tag,
        otherwise: Skip | Dead | None,
        options: TopicOptions,
    ) -> None:
        name = options.get("name") or ".".join(map(str, topics[:1])) or "topic"
        self._app = app
        self._topics = topics
        self._options: TopicOptions = {**options, "name": name}
        self._events = EventHandlers(name=name, by=by, otherwise=otherwise, resources=app._parts.resources)
        self._route: Route | None = None

    @overload
    def on(
        self, tag: str, /, *tags: str, value: type[bytes] | type[str] | type[int] | None = None
    ) -> Callable[[F], F]: ...

    @overload
    def on(self, tag: str, /, *tags: str, value: SerdeOf[Value]) -> ForOne[Value]: ...

    def on(self, tag: str, /, *tags: str, value: Any = None, **others: Any) -> Callable[[F], F]:
        """Declare the handler of these event types. `value` is the serde of their values; without one the annotation
        says it, as in `App.handler`.

        Raises `ConfigError` for a type that has a handler, for an option of the subscription, and for what cannot work.
        """
        for option in others:
            is_shared = option in TopicOptions.__optional_keys__
            where = "in app.topic(...): all event types share it" if is_shared else "value="
            raise ConfigError(f"{self._events.name}: on: found {option}=, wanted {where}")
        wanted = (tag, *tags)
        for each in wanted:
            if not isinstance(each, str) or not each:
                raise ConfigError(f"{self._events.name}: on: found {shown(each)} for an event type, wanted text")

        def decorate(function: F) -> F:
            refuse_generators(function, f"{self._events.name}: the handler of {shown(tag)}")
            self._declare(self._events.with_handler(wanted, function, value))
            return function

        return decorate

    def otherwise(self, function: F) -> F:
        """Declare the handler of all other records: of other types, or without one. Its value is bytes unless its
        annotation says more.

        Raises `ConfigError` where the topic has such a handler, or was declared with ``otherwise=``.
        """
        refuse_generators(function, f"{self._events.name}: the otherwise handler")
        self._declare(self._events.with_default(function, None))
        return function

    def check(self) -> None:
        """Raise `ConfigError` without a handler."""
        if self._route is None:
            raise ConfigError(f"{self._events.name}: found no handler of an event type, wanted one: @orders.on('...')")

    def _declare(self, events: EventHandlers) -> None:
        self._route = self._app._declare_events(self._route, events, self._topics, self._options)
        self._events = events

    def __repr__(self) -> str:
        return f"EventTopic({self._events.name!r}, by={self._events.by!r})"


class DeclaresEvents(Declares):
    """The part of `App` and `Router` that declares topics of several event types."""

    @abstractmethod
    def _declare_events(
        self, old: Route | None, events: EventHandlers, topics: tuple[str, ...], options: TopicOptions
    ) -> Route: ...

    @explained("App.topic")
    def topic(
        self, *topics: str, by: Tag, otherwise: Skip | Dead | None = None, **options: Unpack[TopicOptions]
    ) -> EventTopic:
        """Declare topics with several event types. `by` says where a record's type is: `TagHeader`, `TagField` or
        `SchemaName`. It is read before the value is decoded.

        All types are one subscription: `ordering` holds across them, offsets are committed over all of them, and the
        options are those of `handler` for single records. They stand here, not at the types.

        A record of a type without a handler is a dead letter, or has the outcome `otherwise`, ``Skip()`` or
        ``Dead("...")``. Each is counted and logged as `event_type_unhandled`. A handler for them is declared by
        `EventTopic.otherwise`.

        Raises `ConfigError` for what cannot work.
        """
        self._refuse_while_running("a topic")
        if not isinstance(by, Tag):
            raise ConfigError(
                f"topic: found by={shown(by)}, wanted where the event type is: TagHeader('type'), TagField('type') or "
                "SchemaName(registry)"
            )
        if otherwise is not None and not isinstance(otherwise, Skip | Dead):
            raise ConfigError(f"topic: found otherwise={shown(otherwise)}, wanted Skip() or Dead('...')")
        for name in ("value", "batch", "columns", "to", "max_batch", "linger_ms"):
            if name in options:
                raise ConfigError(f"topic: found {name}=, which a topic of several event types has not")
        topic = EventTopic(self, topics, by=by, otherwise=otherwise, options=options)
        self._parts.start_checks.append(topic.check)
        return topic
