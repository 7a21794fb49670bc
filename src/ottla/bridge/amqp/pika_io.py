"""pika's I/O with a hook on the bytes received.

pika takes an object for its I/O and gives it a factory of protocols, whose `data_received` gets what the socket has.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from pika.adapters.select_connection import IOLoop
from pika.adapters.utils.selector_ioloop_adapter import SelectorIOServicesAdapter


class InterceptedIO(SelectorIOServicesAdapter):  # type: ignore[misc]
    """`reading` is called with pika's `data_received` and returns the function that replaces it."""

    def __init__(self, reading: Callable[[Callable[[bytes], Any]], Callable[[bytes], Any]]) -> None:
        super().__init__(IOLoop())
        self._reading = reading

    def create_streaming_connection(
        self, protocol_factory: Callable[[], Any], sock: socket.socket, *arguments: Any, **options: Any
    ) -> Any:
        def made() -> Any:
            protocol = protocol_factory()
            protocol.data_received = self._reading(protocol.data_received)
            return protocol

        return super().create_streaming_connection(made, sock, *arguments, **options)
