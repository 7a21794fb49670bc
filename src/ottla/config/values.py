"""Converts text or a Python value to a setting's value. Errors say what was found and what was wanted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ottla.amounts import parse_setting
from ottla.config.addresses import BadAddress, parse_addresses
from ottla.config.catalog import HIDDEN_NAMES, SPECS, Kind, Spec
from ottla.errors import ConfigError
from ottla.showing import HIDDEN, shown
from ottla.topics import text_problem

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def parse(name: str, value: Any, *, origin: str) -> Any:
    """Return the value of setting `name` in its own type. `origin` says where it was found, for the message."""
    for text in value if isinstance(value, list | tuple) else (value,):
        problem = text_problem(text) if isinstance(text, str) else None
        if problem is not None:  # a client of C would end the process, or use a part of it
            raise ConfigError(f"{name} ({origin}): {problem}")
    spec = SPECS.get(name)
    if spec is None or spec.kind is Kind.ANY:
        return value
    is_number = spec.kind in (Kind.INT, Kind.NUMBER)
    amount = parse_setting(name, value) if is_number and isinstance(value, str) else None
    parsed: Any = _PARSERS[spec.kind](spec, value, origin) if amount is None else amount
    if spec.choices and parsed not in spec.choices:
        raise _wrong(spec, value, origin, wanted=f"one of {', '.join(spec.choices)}")
    if spec.low is not None and parsed < spec.low:
        raise _wrong(spec, value, origin, wanted=f"at least {spec.low:,}")
    if spec.high is not None and parsed > spec.high:
        raise _wrong(spec, value, origin, wanted=f"at most {spec.high:,}")
    return parsed


def _text(spec: Spec, value: Any, origin: str) -> str:
    if isinstance(value, str):
        text = value.strip()
    elif isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        text = ",".join(item.strip() for item in value)  # bootstrap servers, assignment strategies
    elif isinstance(value, int) and not isinstance(value, bool):
        text = str(value)  # acks=1
    else:
        raise _wrong(spec, value, origin, wanted="text")
    for choice in spec.choices:
        if text.lower() == choice.lower():
            return choice
    return text


def _servers(spec: Spec, value: Any, origin: str) -> str:
    """Return addresses; visibly invalid ones are refused at once, before any network access."""
    if isinstance(value, Mapping):
        raise _wrong(spec, value, origin, wanted="host:port[,host:port...]; settings are given as settings={...}")
    text = _text(spec, value, origin)
    try:
        parse_addresses(text)
    except BadAddress as error:
        raise _wrong(spec, value, origin, wanted=str(error)) from None
    return text


def _whole(spec: Spec, value: Any, origin: str) -> int:
    if isinstance(value, bool):
        raise _wrong(spec, value, origin, wanted="a whole number")
    try:
        number = int(value.replace("_", "")) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        raise _wrong(spec, value, origin, wanted="a whole number") from None
    if isinstance(value, float) and value != number:
        raise _wrong(spec, value, origin, wanted="a whole number")
    return number


def _number(spec: Spec, value: Any, origin: str) -> float:
    if isinstance(value, bool):
        raise _wrong(spec, value, origin, wanted="a number")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise _wrong(spec, value, origin, wanted="a number") from None
    if not math.isfinite(number):
        raise _wrong(spec, value, origin, wanted="a finite number")
    return int(number) if number == int(number) else number


def _bool(spec: Spec, value: Any, origin: str) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _wrong(spec, value, origin, wanted="true or false")


_PARSERS: dict[Kind, Callable[[Spec, Any, str], Any]] = {
    Kind.TEXT: _text,
    Kind.SERVERS: _servers,
    Kind.INT: _whole,
    Kind.NUMBER: _number,
    Kind.BOOL: _bool,
}


def _wrong(spec: Spec, value: Any, origin: str, *, wanted: str) -> ConfigError:
    found = HIDDEN if spec.name in HIDDEN_NAMES else shown(value)
    return ConfigError(f"{spec.name} ({origin}): found {found}, wanted {wanted}")
