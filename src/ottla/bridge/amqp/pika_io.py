"""The I/O of pika's `SelectConnection`, with something between its socket and its reading.

pika takes an object for its I/O and gives it a factory of protocols, whose `data_received` gets what the socket has.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from pika.adapters.select_connection import IOLoop
from pika.adapters.utils.selector_ioloop_adapter import SelectorIOServicesAdapter


class ReadingBetween(SelectorIOServicesAdapter):  # type: ignore[misc]
    """`reading` gets pika's function that takes bytes, and returns the one that takes them in its place."""

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
