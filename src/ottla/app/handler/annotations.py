"""What a handler's annotations say of the values it gets: whether its serde gives them, or which serde does.

Only what is certain is refused. An annotation that says nothing (`Any`, a type variable) fits every serde. A serde that
does not know the type of its values fits every annotation. One that cannot be evaluated (a name that exists only for
the type checker) chooses no serde.
"""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any, Final

import msgspec

from ottla.app.handler.hints import Unresolved
from ottla.records import Malformed, Record
from ottla.serdes import Bytes, Int64, Json, Serde, Str, as_serde
from ottla.serdes.json_unions import json_union
from ottla.serdes.models import mentions_pydantic, type_text

_BYTES: Final = (bytes, bytearray, memoryview)
_NOTHING: Final = type(None)
_ITSELF: Final[dict[Any, type[Serde[Any]]]] = {bytes: Bytes, bytearray: Bytes, memoryview: Bytes, str: Str, int: Int64}


def element_of(hint: Any) -> Any:
    """Return the annotation of one element of what is annotated as a list. TypeError for what no list can be."""
    if isinstance(hint, Unresolved):
        return hint
    bare = _bare(hint)
    if _says_nothing(bare) or len(_members(bare)) > 1:
        return Any
    arguments = typing.get_args(bare)
    if not _is_kind_of(list, bare):
        raise TypeError(f"found {type_text(hint)}, wanted a list: batch=True passes many records at once")
    return arguments[0] if len(arguments) == 1 else Any


def value_of_record(hint: Any) -> Any:
    """Return `Order` for `Record[Order]`."""
    if isinstance(hint, Unresolved):
        return hint
    arguments = typing.get_args(hint)
    return arguments[0] if typing.get_origin(hint) is Record and arguments else Any


def chosen_serde(given: Any, hint: Any) -> Serde[Any]:
    """Return the serde that was given, checked against the annotation, or the one that the annotation asks for.

    Without a serde, bytes, text and integers are themselves, and any other type is JSON; `Json()` gets its type
    from the annotation. TypeError for what does not fit.
    """
    if isinstance(hint, Unresolved):
        return _serde_beside(given, hint)
    wanted = _without_malformed(hint)
    if given is None:
        return _serde_for(wanted)
    serde = as_serde(given)
    if type(serde) is Json and serde.type is Any and not _says_nothing(wanted):
        return _typed(serde, wanted)
    if not _fits(serde.value_type, wanted):
        raise TypeError(f"{serde!r} gives {type_text(serde.value_type)}, but the annotation says {type_text(hint)}")
    return serde


def _serde_beside(given: Any, hint: Unresolved) -> Serde[Any]:
    """Return the serde that was given, where the annotation adds nothing to it: it gives a class of the user's, or is
    one of the user's. Passed over elsewhere, the annotation's handler gets bytes or a dict, and wanted neither."""
    serde = None if given is None else as_serde(given)
    if serde is None:
        raise TypeError(f"found {hint}")
    gives = None if _says_nothing(serde.value_type) else _class_of(_bare(serde.value_type))
    is_plain = type(serde).__module__.startswith("ottla.") if gives is None else gives.__module__ == "builtins"
    if is_plain:
        raise TypeError(f"it gives {'plain values' if gives is None else type_text(serde.value_type)}; found {hint}")
    return serde


def _serde_for(wanted: Any) -> Serde[Any]:
    members = [member for member in _members(wanted) if member is not _NOTHING]
    if _says_nothing(wanted) or not members or any(member in _BYTES for member in members):
        return Bytes()
    if len(members) == 1 and members[0] in _ITSELF:
        return _ITSELF[members[0]]()
    return _typed(Json(), wanted)


def _typed(serde: Json[Any], wanted: Any) -> Json[Any]:
    if not mentions_pydantic(wanted) and not serde.has_decoding_hook and json_union(wanted) is None:
        try:
            strange = next(_custom_types(msgspec.inspect.type_info(wanted)), None)
        except TypeError as error:
            raise TypeError(f"the annotation {type_text(wanted)} cannot be read from JSON: {error}") from None
        if strange is not None:
            raise TypeError(
                f"the annotation {type_text(wanted)} cannot be read from JSON: {type_text(strange)} is no dataclass, "
                "TypedDict, NamedTuple, Struct or pydantic model; pass a serde that creates one"
            )
    return serde.typed(wanted)


def _custom_types(info: Any) -> typing.Iterator[Any]:
    match info:
        case msgspec.inspect.CustomType(cls=strange):
            yield strange
        case msgspec.inspect.UnionType(types=members):
            for member in members:
                yield from _custom_types(member)
        case msgspec.inspect.Metadata(type=inner):
            yield from _custom_types(inner)
        case msgspec.inspect.CollectionType(item_type=item):
            yield from _custom_types(item)


def _fits(found: Any, wanted: Any) -> bool:
    """Return whether a value of the type `found` is one of `wanted`, as far as is known. None fits every type."""
    if _says_nothing(wanted) or _says_nothing(found):
        return True
    members = [member for member in _members(found) if member is not _NOTHING]
    return all(any(_member_fits(member, other) for other in _members(wanted)) for member in members)


def _member_fits(found: Any, wanted: Any) -> bool:
    if _says_nothing(wanted) or _says_nothing(found):
        return True
    if not _is_kind_of(found, wanted):
        return False
    of_found, of_wanted = typing.get_args(found), typing.get_args(wanted)
    is_comparable = typing.get_origin(found) is typing.get_origin(wanted) and len(of_found) == len(of_wanted)
    return not is_comparable or all(_fits(one, other) for one, other in zip(of_found, of_wanted, strict=True))


def _is_kind_of(found: Any, wanted: Any) -> bool:
    """Return whether the class of one type is the other's, or below it. True where it is unknown."""
    lower, upper = _class_of(found), _class_of(wanted)
    if lower is None or upper is None or (lower in _BYTES and upper in _BYTES):
        return True
    if upper in (float, complex) and lower in (int, float):
        return True  # by PEP 484, where a float is wanted an int will do
    try:
        return issubclass(lower, upper)
    except TypeError:  # a protocol with attributes
        return True


def _class_of(hint: Any) -> type[Any] | None:
    plain = typing.get_origin(hint) or hint
    if not isinstance(plain, type):
        return None
    return dict if typing.is_typeddict(plain) else plain


def _says_nothing(hint: Any) -> bool:
    """Return whether the annotation, or a member of it, is not a type that values can be checked against."""
    return any(
        member is Any or member is object or not (isinstance(member, type) or typing.get_origin(member) is not None)
        for member in _members(hint)
    )


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type, without what wraps them."""
    hint = _bare(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(inner for argument in typing.get_args(hint) for inner in _members(argument))
    return (hint,)


def _bare(hint: Any) -> Any:
    """Return an annotation without `Annotated` and `NewType`."""
    while True:
        if typing.get_origin(hint) is Annotated:
            hint = typing.get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        else:
            return _NOTHING if hint is None else hint


def _without_malformed(hint: Any) -> Any:
    members = _members(hint)
    if Malformed not in members:
        return hint
    left = [member for member in members if member is not Malformed]
    if not left:
        return Any
    return left[0] if len(left) == 1 else typing.Union[tuple(left)]  # noqa: UP007 - the members are known at run time
