"""`NamedTuple`: that of `typing`, whose classes are made six times faster.

`typing` compiles the annotation of each field and a function for each class: 7 ms of a broker's process that shall be
ready in 100, and as much of a command that shall answer at once. Here annotations stay as they are written, and
`__new__` is compiled when the first tuple of its class is made. Reading a field and making a tuple cost what they cost
there. Not supported, because nobody here needs it: generic tuples, the functional form, annotations that are no text
(a module with such a class has `from __future__ import annotations`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import _tuplegetter

    class _TupleMaker(type):
        """What a class body becomes: `NamedTuple` itself stays what it is, all others are tuples."""

        def __new__(maker, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(maker, name, bases, namespace)
            if bases != (NamedTuple,):
                raise TypeError(f"{name}: a NamedTuple has no other base")
            return _tuple_class(name, namespace)

    class NamedTuple(metaclass=_TupleMaker):
        """A tuple whose places have names and types."""

    def _tuple_class(name: str, namespace: dict[str, Any]) -> type:
        fields = tuple(namespace["__annotations__"])
        defaults = {field: namespace[field] for field in fields if field in namespace}
        if tuple(defaults) != fields[len(fields) - len(defaults) :]:
            raise TypeError(f"{name}: a field without a default follows one that has one")

        def first_new(cls: type, *values: Any, **named: Any) -> Any:
            made.__new__ = staticmethod(_compile_new(made, defaults))
            return made.__new__(cls, *values, **named)

        def make(cls: type, values: Iterable[Any]) -> Any:
            found = _tuple_new(cls, values)
            if len(found) != size:
                raise TypeError(f"expected {size} values, got {len(found)}")
            return found

        size = len(fields)
        members = _SHARED | namespace | {field: _tuplegetter(index, None) for index, field in enumerate(fields)}
        members |= {"_fields": fields, "_field_defaults": defaults, "__match_args__": fields}
        members |= {"__new__": first_new, "_make": classmethod(make)}
        made = type(name, (tuple,), members)
        return made


_tuple_new = tuple.__new__


def _compile_new(made: Any, defaults: dict[str, Any]) -> Callable[..., Any]:
    fields = ", ".join(made._fields)
    scope = {"_tuple_new": _tuple_new, "__builtins__": {}, "__name__": made.__module__}
    new: Any = eval(f"lambda _cls, {fields}: _tuple_new(_cls, ({fields},))", scope)
    new.__name__, new.__qualname__ = "__new__", f"{made.__qualname__}.__new__"
    new.__defaults__ = tuple(defaults.values()) or None
    return new  # type: ignore[no-any-return]


class _Signature:
    """What `inspect.signature` finds, before the first tuple of a class as well as after it."""

    def __get__(self, instance: object, made: Any) -> Any:
        import inspect

        whole = inspect.signature(_compile_new(made, made._field_defaults))
        return whole.replace(parameters=list(whole.parameters.values())[1:])


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
    return f"{type(self).__name__}({shown})"


def _replace(self: Any, /, **changed: Any) -> Any:
    replaced = self._make(map(changed.pop, self._fields, self))
    if changed:
        raise ValueError(f"{type(self).__name__} has no field {', '.join(changed)}")
    return replaced


def _asdict(self: Any) -> dict[str, Any]:
    return dict(zip(self._fields, self, strict=True))


def _getnewargs(self: Any) -> tuple[Any, ...]:
    return tuple(self)


_SHARED = {
    "__slots__": (),
    "__signature__": _Signature(),
    "__repr__": _repr,
    "__getnewargs__": _getnewargs,
    "_replace": _replace,
    "_asdict": _asdict,
}
