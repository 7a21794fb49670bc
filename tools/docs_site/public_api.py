"""The modules whose names are public. Everything else may change in any release."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

PUBLIC_MODULES = {
    "ottla": "Services, producers, consumers, errors",
    "ottla.admin": "See and change a cluster from code",
    "ottla.serdes": "Encode and decode values",
    "ottla.stores": "Databases and Redis that remember what was handled",
    "ottla.telemetry": "Log events, hooks and counters",
    "ottla.testing": "Fixtures and helpers for tests",
    "ottla.columnar": "Topics as Arrow tables",
    "ottla.spark": "Source, sink and pipelines on Spark",
    "broker_embedded.cluster": "Embedded brokers in your process",
}


@dataclass(frozen=True, slots=True)
class PublicName:
    """A name of a public module, and the module that defines it."""

    module: str
    name: str
    home: str


def public_names(module_name: str) -> list[PublicName]:
    """The names of one module, each with its home: the module itself for what has none, as a constant."""
    module = importlib.import_module(module_name)
    found = []
    for name in sorted(module.__all__, key=lambda each: (each.lower(), each)):
        value = getattr(module, name)
        home = getattr(value, "__module__", None)
        is_here = isinstance(home, str) and getattr(value, "__name__", None) == name
        found.append(PublicName(module_name, name, home if is_here and isinstance(home, str) else module_name))
    return found
