"""The table of APIs: key, versions and handler are bound in one place, and everyone else reads it.

ApiVersions, the dispatcher and the protocol support page are derived from `TABLE`; no version number is written twice.
`server.apis` lists what is served; the module of an API there has its handler, and may say how its errors look: see
`context`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from broker_embedded.server.requests.context import Handler, OnError
from broker_embedded.server.requests.forwarding import to_controller as forwarded
from ottla_wire.protocol import ApiKey


class Api:
    """One served API. Its module is loaded when its handler is first asked for."""

    __slots__ = ("handler", "key", "listed_from", "max_version", "min_version", "on_error", "to_controller")

    handler: Handler
    on_error: OnError | None

    def __init__(
        self, key: ApiKey, *, versions: tuple[int, int], listed_from: int | None = None, to_controller: bool = False
    ) -> None:
        """`listed_from`: the lowest version that ApiVersions lists; lower than the first of `versions` only for Produce
        (KAFKA-18659). `to_controller`: the handler runs on the node whose controller is active, whichever was asked.
        """
        self.key = key
        self.min_version, self.max_version = versions
        self.listed_from = versions[0] if listed_from is None else listed_from
        self.to_controller = to_controller

    def __getattr__(self, name: str) -> Any:
        """Import the module at its first request; later requests read the slots directly."""
        if name not in ("handler", "on_error"):
            raise AttributeError(name)
        module = import_module(f"broker_embedded.server.apis.{self.key.name.lower()}")
        self.on_error = getattr(module, "on_error", None)
        self.handler = (
            forwarded(self.key, module.handle, check_here=getattr(module, "check_here", None))
            if self.to_controller
            else module.handle
        )
        return getattr(self, name)


TABLE: dict[int, Api] = {}


def serve(
    key: ApiKey, *, versions: tuple[int, int], listed_from: int | None = None, to_controller: bool = False
) -> None:
    """Put an API into the table. ValueError if it is there."""
    if key in TABLE:
        raise ValueError(f"{key.name} is served twice")
    TABLE[int(key)] = Api(key, versions=versions, listed_from=listed_from, to_controller=to_controller)
