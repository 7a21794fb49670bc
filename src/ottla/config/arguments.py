"""Errors for unknown arguments: they name the public class and the right argument.

Python's own error names the class that defines `__init__`, which may be internal, and nothing to do. Other clients call
the same things by other names, and whoever comes from one types these first.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from ottla.config.catalog import Role, known_names
from ottla.errors import ConfigError
from ottla.showing import shown

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type[Any])

_SERVERS: Final = ("servers", "brokers", "broker", "hosts", "host", "url", "bootstrap", "broker_address")
_OTHER_WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_SERVERS, "bootstrap_servers"),
    **dict.fromkeys(("config", "conf", "configs"), "settings"),
    **dict.fromkeys(("group_id", "consumer_group", "group_name"), "group"),
    **dict.fromkeys(("workers", "max_workers", "parallelism", "threads"), "concurrency"),
    **dict.fromkeys(("batch_size", "max_records", "max_poll_records"), "max_batch"),
    **dict.fromkeys(("dead_letter", "dlq", "dlq_topic", "dead_letters"), "dead_letter_topic"),
    **dict.fromkeys(("retries", "max_retries", "attempts"), "max_attempts"),
    "delays": "delays_s",
}
"""Names in other clients, and the name here."""

_SERDE_WORDS: Final = ("serializer", "deserializer", "schema", "encoder", "decoder", "type", "serde")

OTHER_METHODS: Final[Mapping[str, Mapping[str, str]]] = {
    "producer": {
        "produce": "send(topic, value, key=...), which returns a delivery",
        "send_and_wait": "send(topic, value).result(); on an event loop: await producer.send(topic, value)",
        "poll": "nothing: deliveries are settled by a thread of the producer, and on an event loop by it",
        **dict.fromkeys(
            ("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction"),
            "with producer.transaction(): it commits at the end of its block, and aborts at an error",
        ),
    },
    "consumer": {
        "subscribe": "the topics by position: Consumer('orders', group='billing')",
        "consume": "poll(timeout_s, max_records=...), or a loop: for record in consumer",
        "getone": "a loop: async for record in consumer",
        "getmany": "poll(timeout_s, max_records=...)",
        "store_offsets": "ack(record): offsets are committed when their records are done",
    },
    "app": {
        **dict.fromkeys(("subscriber", "agent", "consumer"), "@app.handler('orders', value=Json(Order))"),
        "dataframe": "@app.handler('orders', columns=True)",
        "publisher": "producer = app.producer(value=Json(Order)), and producer.send(topic, value) in the handler",
        "publish": "producer = app.producer(value=Json(Order)), and producer.send(topic, value) in the handler",
        **dict.fromkeys(("start", "main"), "app.run(), await app.serve(), or `ottla run module:app`"),
        **dict.fromkeys(("on_startup", "after_startup"), "@app.on_start"),
        **dict.fromkeys(("on_shutdown", "after_shutdown"), "@app.on_stop"),
        **dict.fromkeys(("close", "shutdown"), "app.stop()"),
    },
}


class ArgumentError(ConfigError, TypeError, has_page=False):
    """Fix the arguments of the call: the message names the wrong one, and the right one."""


def explained(public: str, renamed: Mapping[str, str] | None = None) -> Callable[[F], F]:
    """Decorate a function: arguments that do not fit it are an `ArgumentError` with its public name.

    `renamed` maps old names of arguments to the names of today. An old name is accepted with a `DeprecationWarning`.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if renamed is not None and not renamed.keys().isdisjoint(named):
                named = _with_new_names(public, named, renamed)
            try:
                return function(*arguments, **named)
            except TypeError as error:
                problem = None if isinstance(error, ConfigError) else _problem(call, arguments, named)
                if problem is None:
                    raise  # of something that the function does
            raise ArgumentError(f"{public}: {problem}")

        return cast("F", call)

    return decorate


def names_arguments(kind: C) -> C:
    """Decorate a class: the same for its `__init__`."""
    kind.__init__ = explained(kind.__name__)(kind.__init__)
    return kind


def _with_new_names(public: str, named: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    changed = dict(named)
    for before in renamed.keys() & named.keys():
        name = renamed[before]
        if name in changed:
            raise ArgumentError(f"{public}: found {before}= beside {name}=, its new name, wanted {name}= alone")
        warnings.warn(
            f"{public}: {before}= is called {name}= since 0.2; the old name goes with 0.3",
            DeprecationWarning,
            stacklevel=3,
        )
        changed[name] = changed.pop(before)
    return changed


def missing_attribute(kind: str, owner: object, name: str) -> AttributeError:
    """Return the error for an unknown attribute of a producer, consumer or app, with the name for users of other
    clients.
    """
    instead = OTHER_METHODS[kind].get(name)
    hint = "" if instead is None else f"; wanted {instead}"
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=owner)


class MissingMethod:
    """A method of other clients that the class lacks: reading it from an instance raises an error that names the right
    call.
    """

    def __init__(self, kind: str, name: str) -> None:
        self._kind = kind
        self._name = name

    def __get__(self, owner: object, kind: type[Any] | None = None) -> Any:
        raise missing_attribute(self._kind, owner if owner is not None else kind, self._name)


def _problem(call: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str | None:
    """Return which argument does not fit and what would; None if all fit."""
    signature = inspect.signature(call)
    try:
        signature.bind(*arguments, **named)
    except TypeError:
        pass
    else:
        return None
    parameters = signature.parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    takes = [
        name
        for name, each in parameters.items()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and name != "self"
    ]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in named:
            if name not in takes:
                return f"found {name}=, wanted {_instead(name, takes)}"
    by_position = [each for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
    if inspect.Parameter.VAR_POSITIONAL not in kinds and len(arguments) > len(by_position):
        left = [name for name in takes if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY and name not in named]
        found = shown(arguments[len(by_position)])
        value = found if found[:1] in "'[(0123456789" else ""
        return f"found {found} by position, wanted it by name" + (f": {left[0]}={value}" if left else "")
    given = {each.name for each in by_position[: len(arguments)]} | named.keys()
    for name in takes:
        each = parameters[name]
        if each.default is each.empty and name not in given:
            is_mapping = any(isinstance(argument, Mapping) for argument in arguments)
            more = "; settings are given as settings={...}" if is_mapping and "settings" in takes else ""
            return f"found no {name}=, wanted one{more}"
    return None


def _instead(name: str, takes: Sequence[str]) -> str:
    word = _OTHER_WORDS.get(name)
    if word in takes:
        return f"{word}="
    part, _, rest = name.rpartition("_")
    if rest in _SERDE_WORDS and part in ("", "value", "key") and "value" in takes:
        serde = {"key": "key=Str()"}.get(part, "value=Json(Order)")
        return f"a serde: {serde}"
    dotted = name.replace("_", ".")
    if any(dotted in known_names(role) for role in Role):
        setting = f'settings={{"{dotted}": ...}}'
        return setting if "settings" in takes else f"it where the settings are: {setting} of the app"
    if name == "loop":
        return "nothing: it belongs to the event loop in which it is started"
    if name in ("topics", "topic"):
        return "the topics by position: 'orders', 'returns'"
    near = difflib.get_close_matches(name, takes, n=1, cutoff=0.6)
    return f"{near[0]}=" if near else f"one of {', '.join(takes)}"
