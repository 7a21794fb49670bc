"""One connection to any broker of a cluster, for requests that no client can send. Brokers forward changes to the
controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ottla.errors import BrokerUnavailable
from ottla.wire_client.client_settings import wire_settings
from ottla.wire_client.errors import BrokerRefused
from ottla.wire_client.net.broker_connection import Connection
from ottla_wire.protocol import ErrorCode


@contextmanager
def any_broker(settings: Mapping[str, object]) -> Iterator[Connection]:
    """Connect to the first broker that answers."""
    wire = wire_settings({"client.id": "ottla-cli", **settings})
    problem: BrokerUnavailable | None = None
    for host, port in wire.bootstrap_servers:
        try:
            connection = Connection(host, port, wire)
        except BrokerUnavailable as error:
            problem = error
            continue
        try:
            yield connection
        finally:
            connection.close()
        return
    raise problem or BrokerUnavailable("the metadata names no broker")


def refuse_error(code: int, message: str | None) -> None:
    """Raise `BrokerRefused` for an error code of an answer."""
    if code != ErrorCode.NONE:
        raise BrokerRefused(f"the broker refused: {ErrorCode.of(code).name}: {message or 'it does not say why'}")
