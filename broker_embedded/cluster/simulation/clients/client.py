"""Base of the simulated clients: leaders, coordinators, and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, TypeVar

from broker_embedded.cluster.simulation.clients.connection import NoAnswer, SimulatedConnection
from broker_embedded.server.net.network import Network
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

T = TypeVar("T")

Address = tuple[str, int]

REQUEST_TIMEOUT_S = 4.0
"""Longer than any wait that a request asks for."""

COORDINATOR_ERRORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
LEADER_ERRORS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
)


class TryAgain(Exception):
    """Not now, or not here."""


class RequestRefused(Exception):
    """A response that no retry will change."""

    def __init__(self, code: int, what: str) -> None:
        self.code = ErrorCode(code)
        super().__init__(f"{what}: {self.code.name}")


class Client:
    """Connections to the brokers, metadata, coordinators."""

    def __init__(self, name: str, *, network: Network, bootstrap: list[Address], random: Random) -> None:
        self.name = name
        self.random = random
        self._network = network
        self._bootstrap = bootstrap
        self._addresses: dict[int, Address] = {}
        self._connections: dict[Address, SimulatedConnection] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._coordinators: dict[tuple[str, int], int] = {}

    async def ask(self, node: int, api: ApiKey, version: int, body: Mapping[str, Any]) -> Message:
        """Ask a broker. NoAnswer if it does not."""
        address = self._addresses.get(node)
        if address is None:
            raise NoAnswer(f"broker {node} is not known")
        return await self._ask_at(address, api, version, body)

    async def ask_any(self, api: ApiKey, version: int, body: Mapping[str, Any]) -> Message:
        """Ask whichever broker."""
        addresses = sorted({*self._bootstrap, *self._addresses.values()})
        return await self._ask_at(self.random.choice(addresses), api, version, body)

    async def until_done(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry until it works, with pauses that grow to a second. Errors that a retry cannot repair are raised."""
        pause_s = 0.02
        while True:
            try:
                return await attempt()
            except (NoAnswer, TryAgain):
                await asyncio.sleep(pause_s * self.random.uniform(0.8, 1.2))
                pause_s = min(1.0, 2 * pause_s)

    # --- who leads, who coordinates

    async def leader(self, topic: str, partition: int) -> int:
        """Return the known leader, fetched if unknown. Raises TryAgain if there is none."""
        if (topic, partition) not in self._leaders:
            await self.refresh(topic)
        leader = self._leaders.get((topic, partition), -1)
        if leader < 0:
            self.forget_leaders()
            raise TryAgain(f"{topic}-{partition} has no leader")
        return leader

    async def refresh(self, topic: str) -> None:
        body = {
            "topics": [{"name": topic}],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        answer = await self.ask_any(ApiKey.METADATA, 9, body)
        for broker in answer.brokers:
            self._addresses[broker.node_id] = (broker.host, broker.port)
        for found in answer.topics:
            for partition in found.partitions:
                self._leaders[found.name, partition.partition_index] = partition.leader_id

    def forget_leaders(self) -> None:
        self._leaders.clear()

    async def coordinator(self, key: str, key_type: int) -> int:
        """Return the coordinator; kind 0 is for a group, 1 for a transactional id."""
        known = self._coordinators.get((key, key_type))
        if known is not None:
            return known
        answer = await self.ask_any(ApiKey.FIND_COORDINATOR, 3, {"key": key, "key_type": key_type})
        if answer.error_code:
            raise TryAgain(f"coordinator of {key}: {ErrorCode(answer.error_code).name}")
        self._addresses[answer.node_id] = (answer.host, answer.port)
        self._coordinators[key, key_type] = answer.node_id
        return int(answer.node_id)

    async def ask_coordinator(
        self, key: str, key_type: int, api: ApiKey, version: int, body: Mapping[str, Any]
    ) -> Message:
        node = await self.coordinator(key, key_type)
        try:
            return await self.ask(node, api, version, body)
        except NoAnswer:
            self.forget_coordinator(key, key_type)
            raise

    def forget_coordinator(self, key: str, key_type: int) -> None:
        self._coordinators.pop((key, key_type), None)

    def check_coordinator_error(self, code: int, key: str, key_type: int, what: str) -> None:
        """Raise TryAgain for an error that another coordinator or another moment would mend; pass NONE."""
        if code in COORDINATOR_ERRORS:
            self.forget_coordinator(key, key_type)
        if code:
            retriable = ErrorCode(code).retriable or code in COORDINATOR_ERRORS
            raise TryAgain(f"{what}: {ErrorCode(code).name}") if retriable else RequestRefused(code, what)

    # --- connections

    async def _ask_at(self, address: Address, api: ApiKey, version: int, body: Mapping[str, Any]) -> Message:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = SimulatedConnection(self.name)
            try:
                await self._network.connect(*address, lambda: connection)
            except OSError as error:
                raise NoAnswer(f"{address[0]}:{address[1]} cannot be reached: {error}") from None
            self._connections[address] = connection
        return await connection.ask(api, version, body, timeout_s=REQUEST_TIMEOUT_S)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
