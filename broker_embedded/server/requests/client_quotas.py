"""Holds the clients of one broker to their quotas: measures what they use, says how long to wait, mutes them (KIP-219).

There is one of these while the metadata has quotas. It stands around handlers. A client that has used more than its
quota is answered at once, with `throttle_time_ms`, and nothing more is read from its connection for that time, whether
it knows the field or not. Time passes by the broker's clock.

    producer_byte_rate        the size of Produce requests; with acks=0 too
    consumer_byte_rate        the records of Fetch responses (`fetch.operation` asks before it answers)
    request_percentage        the processor's time in handlers, in percent of one processor; Kafka takes the clock's
                              time, and that of its network threads as well
    controller_mutation_rate  partitions created and deleted, on the controller's node; requests that another node
                              passes on say for whom

Nobody holds up other brokers, nor who authenticates. A refusal of a whole request is not throttled; its time counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.promises import map_result
from broker_embedded.quotas.limits import ClientQuotas as QuotasByEntity
from broker_embedded.quotas.mutations import UNLIMITED, MutationQuota
from broker_embedded.quotas.policy import ClientQuotaPolicy, Windows
from broker_embedded.server.requests.requester import names_requester, requester
from ottla_wire.protocol import ApiKey, codec
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.net.connection import ClientConnection
    from broker_embedded.server.requests.context import Body, Handler, RequestContext, Response
    from broker_embedded.server.requests.registry import Api
    from broker_embedded.server.requests.services import Services

_EXEMPT = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class ClientQuotas:
    """The quotas of one broker, in action."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int],
        processor_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`processor_s`: how long the processor has worked for this thread."""
        self._policy = ClientQuotaPolicy(
            windows=Windows(count=config.quota_window_num, length_ms=1000 * config.quota_window_size_seconds),
            mutation_windows=Windows(
                count=config.controller_quota_window_num,
                length_ms=1000 * config.controller_quota_window_size_seconds,
            ),
            now_ms=now_ms,
        )
        self._processor_s = processor_s

    def replace(self, quotas: QuotasByEntity) -> None:
        """Replace the quotas."""
        self._policy.replace(quotas)

    def around(self, api: Api, handler: Handler, *, size: int) -> Handler:
        """Call the handler and measure it. `size` is the request's size in bytes."""

        def measured(ctx: RequestContext[Services], request: Message) -> Response:
            if api.key in _EXEMPT or not _is_served_as_client(ctx.connection):
                return handler(ctx, request)
            measures_time = self._policy.measures_time  # asking for it twice may cost more than the handler
            began_s = self._processor_s() if measures_time else 0.0
            try:
                answer = handler(ctx, request)
            except Exception:
                if measures_time:
                    self._policy.handled(*requester(ctx.connection, ctx.client_id), self._processor_s() - began_s)
                raise
            used_s = self._processor_s() - began_s if measures_time else 0.0
            if answer is None or isinstance(answer, (dict, bytes)):
                return self._settle(api, ctx, answer, size=size, used_s=used_s)

            def settle(body: Any) -> Any:
                return self._settle(api, ctx, body, size=size, used_s=used_s)

            return map_result(answer, settle, cancels_source=True)

        return measured

    def _settle(
        self, api: Api, ctx: RequestContext[Services], answer: Body | bytes | None, *, size: int, used_s: float
    ) -> Body | bytes | None:
        """Record the request's usage, and mute its connection if it exceeds the quota."""
        client = requester(ctx.connection, ctx.client_id)
        body = (
            codec.decode_response(api.key, ctx.api_version, answer).to_dict() if isinstance(answer, bytes) else answer
        )
        throttle_ms: int = 0 if body is None else body.get("throttle_time_ms", 0)  # what the controller, or Fetch, says
        if api.key is ApiKey.PRODUCE:
            throttle_ms = max(throttle_ms, self._policy.produced(*client, size))
        if body is not None:
            throttle_ms = max(throttle_ms, self._policy.handled(*client, used_s))
        if not throttle_ms:
            return answer
        ctx.connection.mute(throttle_ms)
        return None if body is None else {**body, "throttle_time_ms": throttle_ms}

    # --- for handlers

    def fetched(self, connection: ClientConnection, client_id: str | None, size: int) -> int:
        """Count records of `size` bytes that are about to be sent. A result above 0 says that they must not be; never
        to a broker."""
        return 0 if connection.is_of_peer else self._policy.fetched(*requester(connection, client_id), size)

    def leased(self, connection: ClientConnection, client_id: str | None, size: int) -> int:
        """Count records that are leased to the client and sent; the result is for how long it is throttled."""
        return self._policy.leased(*requester(connection, client_id), size)

    def fetchable(self, connection: ClientConnection, client_id: str | None, wanted: int) -> int:
        """Return how many of the requested bytes may be read."""
        most = None if connection.is_of_peer else self._policy.fetchable(*requester(connection, client_id))
        return wanted if most is None else min(wanted, most)

    def mutations(self, connection: ClientConnection, client_id: str | None, *, is_strict: bool) -> MutationQuota:
        if connection.is_of_peer and not names_requester(client_id):
            return UNLIMITED  # the broker asks for itself
        return self._policy.mutations(*requester(connection, client_id), is_strict=is_strict)

    def connected(self, address: str) -> int:
        """Record a new connection. If the result is above 0 the connection is closed after that time."""
        return self._policy.connected(address)


def _is_served_as_client(connection: ClientConnection) -> bool:
    authenticator = connection.authenticator
    return not connection.is_of_peer and (authenticator is None or authenticator.is_complete)
