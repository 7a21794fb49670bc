"""Faults of requests as the control API takes them."""

from __future__ import annotations

from typing import Any

from broker_embedded.cluster.faults.actions import Corrupt
from broker_embedded.cluster.faults.fault import Fault
from broker_embedded.cluster.faults.model import Faults
from broker_embedded.cluster.faults.selector import InvalidFault

LARGEST_NUMBER = 100 * 366 * 24 * 3_600_000
"""A century in milliseconds, the longest delay that the loop's timers take."""

FIELDS = frozenset(Faults.add.__kwdefaults__ or {}) - {"when"}
"""Fields of a fault in JSON."""


def add_from_json(faults: Faults, wanted: dict[str, Any]) -> Fault:
    """Return a fault of the control API: the keywords of `add`, without a predicate."""
    unknown = sorted(set(wanted) - FIELDS)
    if unknown:
        raise InvalidFault(f"fault: found {', '.join(unknown)}, wanted some of {', '.join(sorted(FIELDS))}")
    numbers = ("broker", "partition", "delay_ms", "count", "skip")
    for name in numbers:
        value = wanted.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise InvalidFault(f"{name}: found {value!r}, wanted a number")
        if value is not None and abs(value) > LARGEST_NUMBER:
            raise InvalidFault(f"{name}: found more than {LARGEST_NUMBER}, wanted less")
    for name in ("disconnect", "hold", "after_apply"):
        if not isinstance(wanted.get(name, False), bool):
            raise InvalidFault(f"{name}: found {wanted[name]!r}, wanted true or false")
    for name in ("topic", "group", "transactional_id", "client_id", "source", "message"):
        if wanted.get(name) is not None and not isinstance(wanted[name], str):
            raise InvalidFault(f"{name}: found {wanted[name]!r}, wanted text")
    for name in ("api", "error"):
        if wanted.get(name) is not None and (isinstance(wanted[name], bool) or not isinstance(wanted[name], str | int)):
            raise InvalidFault(f"{name}: found {wanted[name]!r}, wanted a name or a number")
    given = {name: value for name, value in wanted.items() if value is not None}
    if isinstance(given.get("corrupt"), dict):
        try:
            if any(isinstance(each, bool) or not isinstance(each, int) for each in given["corrupt"].values()):
                raise TypeError
            given["corrupt"] = Corrupt(**given["corrupt"])
        except TypeError:
            raise InvalidFault(
                f"corrupt: found {wanted['corrupt']}, wanted true or position, length and mask"
            ) from None
    elif not isinstance(given.get("corrupt", False), bool):
        raise InvalidFault(f"corrupt: found {wanted['corrupt']!r}, wanted true or position, length and mask")
    return faults.add(**given)
