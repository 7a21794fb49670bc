"""Checks of an object that is declared as a handler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ottla.errors import ConfigError
from ottla.showing import shown


def refuse_generators(function: Callable[..., Any], what: str, *, may_yield: bool = False) -> None:
    """Raise `ConfigError` for an object that cannot be a handler: a generator function, whose call runs nothing (with
    `may_yield`, asynchronous ones are allowed), a class, or an object that is not callable."""
    if inspect.isclass(function):
        raise ConfigError(
            f"{what} {function.__qualname__}: found a class, whose call only makes an object; wanted a function, or an "
            f"object that can be called: {function.__name__}()"
        )
    if not callable(function):
        raise ConfigError(f"{what}: found {shown(function)}, wanted a function")
    called = function if inspect.isroutine(function) else getattr(type(function), "__call__", None)  # noqa: B004
    for candidate in (function, called):
        if (inspect.isgeneratorfunction(candidate) and not may_yield) or inspect.isasyncgenfunction(candidate):
            name = getattr(function, "__qualname__", repr(function))
            raise ConfigError(
                f"{what} {name}: found a generator function, whose call runs nothing; wanted return instead of yield"
            )
