"""The thread that talks to one broker: sends what the member decided, and brings back the answers."""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING

from ottla.errors import BrokerUnavailable, OttlaError
from ottla.failures.exceptions import described
from ottla.queues.core.effects import Effect, ShareAnswer
from ottla.queues.core.share_session import ShareRequest
from ottla.queues.io.leased_records import LeasedRecords
from ottla.queues.io.share_messages import share_answer, share_body
from ottla.wire_client.net.broker_connection import Connection
from ottla_wire.protocol import ErrorCode

if TYPE_CHECKING:
    from ottla.queues.io.lease_client import LeaseClient


class BrokerThread:
    """See the module. It ends when the member has nothing more to say to the broker."""

    def __init__(self, client: LeaseClient, node: int) -> None:
        self._client = client
        self._node = node
        self._changed = threading.Condition(client.lock)
        self._idle_until_ms: float = -1
        """When it looks for something to say; -1 while it is at work, infinity if it waits to be woken."""
        self._connection: Connection | None = None
        self._records = LeasedRecords(client.settings, client.names.get)
        self._thread = threading.Thread(target=self._run, name=f"ottla-{client.group}-broker-{node}", daemon=True)
        self.is_over = False
        self.problem: str | None = None
        """Why the broker does not lease records."""

    def start(self) -> None:
        """Begin to talk to the broker."""
        self._thread.start()

    def wake(self, now_ms: int) -> None:
        """With the lock: look again whether there is something to say."""
        if self._idle_until_ms < 0:
            return
        look_ms = self._client.member.look_ms(self._node, now_ms)
        if look_ms is not None and look_ms < self._idle_until_ms:
            self._changed.notify()

    def _run(self) -> None:
        try:
            while (request := self._next()) is not None:
                self._client.perform(self._say(request))
        except BaseException as error:  # the member's state is unknown: it ends, and its app says so
            self.is_over = True
            self._client.ended(error)
        finally:
            self._disconnect()

    def _next(self) -> ShareRequest | None:
        """Wait for the next request; None when there is none any more."""
        client = self._client
        with client.lock:
            while True:
                if self._node not in client.member.nodes:
                    self.is_over = True
                    client.wake()
                    return None
                now_ms = client.now_ms()
                request = client.member.next_request(self._node, now_ms)
                if request is not None:
                    return request
                look_ms = client.member.look_ms(self._node, now_ms)
                self._idle_until_ms = inf if look_ms is None else look_ms
                self._changed.wait(None if look_ms is None else max(1, look_ms - now_ms) / 1_000)
                self._idle_until_ms = -1

    def _say(self, request: ShareRequest) -> list[Effect]:
        client = self._client
        try:
            answer = self._exchange(request)
            self.problem = None
        except Exception as error:  # whatever it is: leases whose broker cannot be asked are lost
            if not isinstance(error, OttlaError):
                error = BrokerUnavailable(described(error))
            self.problem = f"broker {self._node}: {error}"
            self._disconnect()
            with client.lock:
                effects = client.member.disconnected(self._node, str(error), client.now_ms())
                client.wake()
            return effects
        if answer.error is not ErrorCode.NONE:
            self.problem = f"broker {self._node} does not lease records: {answer.error.name}"
            self._disconnect()  # what it leased through the session is free at once
        with client.lock:
            effects = client.member.answered(self._node, answer, client.now_ms())
            client.wake()
        return effects

    def _exchange(self, request: ShareRequest) -> ShareAnswer:
        client = self._client
        connection = self._connection
        if connection is None or not connection.is_open:
            if request.epoch != 0:
                raise BrokerUnavailable("the connection was closed")
            address = client.addresses.get(self._node)
            if address is None:
                raise BrokerUnavailable(f"broker {self._node} is not in the cluster's metadata")
            connection = self._connection = Connection(*address, client.settings)
        api_key, body = share_body(
            request, group=client.group, member_id=client.member_id, max_bytes=client.settings.fetch_max_bytes
        )
        return share_answer(connection.call(api_key, body), self._records.read)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
