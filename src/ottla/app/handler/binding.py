"""Binds a handler's parameters to a record's parts, once, when it is decorated.

A parameter is bound by its name (`value`, `key`, `record`, `headers`, `context`, `transaction`, `out`), else by its
annotation (`Record`, `Record[Order]`, `Context`), and the one that is left, if it is only one, is the value:

    def on_order(order: Order) -> None: ...
    def on_order(order: Order, key: str, context: Context) -> Outcome | None: ...
    def on_order(record: Record[Order]) -> None: ...

A batch handler is bound to lists: `values`, `keys`, `records`, `context`, or `list[Record[Order]]` by annotation. What
cannot be bound is an error at once, naming the parameter, not a failure of every record later. So is an annotation
that says another type than the serde gives (`ottla.app.handler.annotations`).
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.app.handler.annotations import element_of, value_of_record
from ottla.app.handler.handler_context import Context
from ottla.app.handler.hints import Unresolved, hints_of
from ottla.app.handler.resources import Provide, Resources, provided, with_resources
from ottla.errors import ConfigError
from ottla.event_attributes import CloudEvent
from ottla.failures.retry_headers import original_of
from ottla.once.outputs import Out
from ottla.records import Malformed, Record
from ottla_wire.facts import fact

Call = Callable[[Any, Context], Any]
"""A handler as the invoker calls it: (record or list of records, context)."""

TRANSACTION: Final = "context.transaction"
"""Source of a parameter named `transaction`. Only a handler with a store may have one."""

OUT: Final = "context.out"
"""Source of a parameter named `out`. Only a handler with `exactly_once=` has one."""

EVENT: Final = "subject.event"
"""Source of a parameter that is annotated as a `CloudEvent`."""

_OWN_OUT: Final = "Out(context.outputs, subject.offset)"
"""`Binding` for a handler without middlewares or arguments to bind: half the cost per call."""

_SINGLE: Final = {
    "value": "subject.value",
    "key": "subject.key",
    "record": "subject",
    "headers": "subject.headers",
    "context": "context",
    "transaction": TRANSACTION,
    "out": OUT,
}
_BATCH: Final = {
    "values": "[record.value for record in subject]",
    "keys": "[record.key for record in subject]",
    "records": "subject",
    "context": "context",
    "transaction": TRANSACTION,
    "out": OUT,
}

_COLUMNS: Final = {
    "values": "subject.data",
    "keys": "subject.keys",
    "offsets": "subject.offsets",
    "timestamps": "subject.timestamps",
    "headers": "subject.headers",
    "context": "context",
    "transaction": TRANSACTION,
}


class BindingError(ConfigError, TypeError):
    """Change the handler's parameters: the message names the one that cannot be bound, and the names that can."""


@fact
class Binding:
    """A handler made callable with (subject, context)."""

    call: Call
    is_async: bool
    wants_malformed: bool
    """The handler says by annotation (`Order | Malformed`) that it takes values which could not be decoded."""
    value_hint: Any = Any
    """The annotated type of a single value; Any without an annotation."""
    key_hint: Any = Any
    wants_transaction: bool = False
    """True if it has a parameter named `transaction`."""
    frame_hint: Any = Any
    """The annotated type of the batch of a columns handler."""
    wants_out: bool = False
    """True if it has a parameter named `out`."""
    makes_out: bool = False
    """Its call makes what the handler sends with, and leaves `context.out` alone."""
    opens_per_run: bool = False
    """It has a resource that is opened per run."""
    of_value: Call | None = None
    """The same handler made callable with (value, context), if it takes nothing else of a record."""


def bind(
    handler: Callable[..., Any],
    *,
    is_batch: bool,
    is_columnar: bool = False,
    may_make_out: bool = False,
    resources: Resources | None = None,
) -> Binding:
    """Bind `handler` or raise `BindingError`. `may_make_out`: the handler gets the log's records one by one.
    `resources` opens what parameters ask for by `Provide`."""
    if not callable(handler):
        raise BindingError(f"a handler is a function, got {handler!r}")
    name = getattr(handler, "__qualname__", repr(handler))
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError) as error:
        raise BindingError(f"{name}: its signature cannot be read: {error}") from error
    hints = hints_of(handler)
    provides = provided(handler)
    sources = _COLUMNS if is_columnar else _BATCH if is_batch else _SINGLE
    arguments: list[str] = []
    unbound: list[inspect.Parameter] = []
    said: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name in provides:
            arguments.append(_argument(parameter, f"values[{list(provides).index(parameter.name)}]"))
            continue
        source = sources.get(parameter.name) or _by_annotation(hints.get(parameter.name), is_batch=is_batch)
        if source is None:
            if parameter.default is parameter.empty:
                unbound.append(parameter)
                arguments.append("")
            continue
        arguments.append(_argument(parameter, source))
        said[source] = hints.get(parameter.name, Any)
    if len(unbound) == 1 and "value" not in signature.parameters and "values" not in signature.parameters:
        source = sources["values" if is_batch else "value"]
        arguments[arguments.index("")] = _argument(unbound[0], source)
        said[source] = hints.get(unbound[0].name, Any)
    elif unbound:
        raise BindingError(_cannot_bind(name, unbound, signature, sources, is_batch=is_batch))
    value_hint: Any = Any
    key_hint: Any = Any
    try:
        said = {
            source: _said_by(hint, source, is_batch=is_batch, is_columnar=is_columnar) for source, hint in said.items()
        }
        if not is_columnar:
            value_hint, key_hint = _batch_hints(said) if is_batch else _single_hints(said)
    except TypeError as error:
        raise BindingError(f"{name}{signature}: {error}") from None
    # Only what cannot look for `context.out` is without it.
    makes_out = may_make_out and OUT in said and "context" not in said
    if makes_out:
        arguments = [argument.replace(OUT, _OWN_OUT) for argument in arguments]
    takes_value_only = not (is_batch or is_columnar or provides) and said.keys() <= {_SINGLE["value"], "context"}
    return Binding(
        call=_compiled(handler, arguments, provides, resources, name=name),
        of_value=_compile(handler, [each.replace(_SINGLE["value"], "subject") for each in arguments], "")
        if takes_value_only
        else None,
        value_hint=value_hint,
        key_hint=key_hint,
        wants_transaction=TRANSACTION in said,
        wants_out=OUT in said,
        makes_out=makes_out,
        is_async=_is_async(handler),
        frame_hint=said.get(_COLUMNS["values"], Any),
        wants_malformed=any(_mentions_malformed(hint) for key, hint in hints.items() if key != "return"),
        opens_per_run=any(each.scope == "run" for each in provides.values()),
    )


def _single_hints(said: dict[str, Any]) -> tuple[Any, Any]:
    """Return the declared types of the value and of the key."""
    value = said.get(_SINGLE["value"], value_of_record(said.get(_SINGLE["record"], Any)))
    return value, said.get(_SINGLE["key"], Any)


def _batch_hints(said: dict[str, Any]) -> tuple[Any, Any]:
    """Return the same of the elements of lists."""
    values, keys, records = (
        element_of(said[source]) if source in said else Any
        for source in (_BATCH["values"], _BATCH["keys"], _BATCH["records"])
    )
    return values if _BATCH["values"] in said else value_of_record(records), keys


def _argument(parameter: inspect.Parameter, source: str) -> str:
    is_keyword = parameter.kind is parameter.KEYWORD_ONLY
    return f"{parameter.name}={source}" if is_keyword else source


def _compiled(
    handler: Callable[..., Any],
    arguments: list[str],
    provides: Mapping[str, Provide],
    resources: Resources | None,
    *,
    name: str,
) -> Call:
    call = _compile(handler, arguments, ", values" if provides else "")
    if not provides:
        return call
    is_async = _is_async(handler)
    return with_resources(call, list(provides.values()), resources or Resources(), is_async=is_async, name=name)


def _compile(handler: Callable[..., Any], arguments: list[str], more: str) -> Call:
    # A lambda made for this signature calls the handler in 0.1 µs; a loop over parameters would take 0.6 µs per record.
    # Every piece of the source is one of the constants above or the name of a parameter.
    source = f"lambda subject, context{more}: handler({', '.join(arguments)})"
    call: Call = eval(source, {"handler": handler, "Out": Out})
    return call


def _by_annotation(hint: Any, *, is_batch: bool) -> str | None:
    if hint is None:
        return None
    if isinstance(hint, Unresolved):
        if hint.is_context:
            return "context"
        return "subject" if hint.is_record(is_batch=is_batch) else None
    if hint is Context:
        return "context"
    if hint is CloudEvent and not is_batch:
        return EVENT
    if is_batch:
        arguments = typing.get_args(hint)
        return "subject" if len(arguments) == 1 and _is_record(arguments[0]) else None
    return "subject" if _is_record(hint) else None


def _said_by(hint: Any, source: str, *, is_batch: bool, is_columnar: bool) -> Any:
    """Return the annotation of the bound value parameter. Raises TypeError if it cannot be evaluated and would decide
    the form of a batch; for single values the serde decides whether it is needed."""
    if not isinstance(hint, Unresolved):
        return hint
    if is_columnar and source == _COLUMNS["values"]:
        if not hint.is_frame:
            raise TypeError(f"found {hint}")
        return hint.text
    return hint if hint.says_of_value(is_batch=is_batch) else Any


def _is_record(hint: Any) -> bool:
    return hint is Record or typing.get_origin(hint) is Record


def _mentions_malformed(hint: Any) -> bool:
    if hint is Malformed:
        return True
    is_container = typing.get_origin(hint) in (typing.Union, types.UnionType, list, Record)
    return is_container and any(_mentions_malformed(argument) for argument in typing.get_args(hint))


def _is_async(handler: Callable[..., Any]) -> bool:
    target = getattr(handler, "func", handler)
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(getattr(target, "__call__", None))  # noqa: B004


def _cannot_bind(
    name: str,
    unbound: list[inspect.Parameter],
    signature: inspect.Signature,
    sources: Mapping[str, str],
    *,
    is_batch: bool,
) -> str:
    names = ", ".join(repr(parameter.name) for parameter in unbound)
    if sources is _COLUMNS:
        can_be = "keys, offsets, timestamps, headers, context (by name); one more parameter of any name takes the batch"
        return f"{name}{signature}: cannot bind {names}. Parameters can be: {can_be}"
    can_be = (
        "values, keys, records, context (by name), list[Record[...]] or Context (by annotation)"
        if is_batch
        else "value, key, record, headers, context (by name), Record[...] or Context (by annotation)"
    )
    one = "one more parameter of any name takes the values" if is_batch else "one more of any name takes the value"
    return f"{name}{signature}: cannot bind {names}. Parameters can be: {can_be}; {one}"


def restore_original_record(binding: Binding, *, is_batch: bool) -> Binding:
    """Return the binding that is called with the record of its own topic, for one that comes out of a retry topic.

    Position, timestamp and headers are those of the first delivery; only `context.attempt` shows that it is not. A
    handler that remembers topic, partition and offset of what it has seen therefore works the same for retries.
    """
    call = binding.call

    def single(subject: Any, context: Context) -> Any:
        return call(original_of(subject), context)

    def batch(subject: Any, context: Context) -> Any:
        return call([original_of(record) for record in subject], context)

    return Binding(
        call=batch if is_batch else single,
        is_async=binding.is_async,
        wants_malformed=binding.wants_malformed,
        of_value=binding.of_value,
    )
