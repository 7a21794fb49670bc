"""What is said on one connection, sans IO: requests as bytes to send, responses out of the bytes that come.

    bytes = pipeline.request(ApiKey.METADATA, {...})             # send them
    size = pipeline.frame_size(first four bytes)                 # receive that many more
    message = pipeline.response(frame)                           # that of the oldest request in flight

Nothing that a peer sends is trusted: a size is held against a limit before memory is taken for it, and what is no
response ends the connection. Every error here means: close it, as later bytes cannot be matched to requests any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.errors import BrokerUnavailable, InputError
from ottla.wire_client.errors import ResponseTooLarge
from ottla.wire_client.net.kafka_versions import api_not_served
from ottla_wire.protocol import ApiKey, FrameTooLarge, ProtocolError, SchemaError, codec, headers, schemas
from ottla_wire.protocol.framing import SIZE_BYTES, frame_size

# The versions this client is written for, newest first what it needs. From Fetch 13 on topics go by id instead of name
# (KIP-516), so that what is read is of the topic whose offsets were planned; from Produce 13 on too.
NEWEST: Final = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 13,
    ApiKey.LIST_OFFSETS: 8,
    ApiKey.METADATA: 12,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
    ApiKey.DESCRIBE_CONFIGS: 4,
    # Administration (`ottla.admin`).
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 1,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
    ApiKey.CREATE_ACLS: 3,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_ACLS: 3,
    ApiKey.DELETE_GROUPS: 3,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.DESCRIBE_ACLS: 3,
    ApiKey.DESCRIBE_CLUSTER: 2,
    ApiKey.DESCRIBE_GROUPS: 6,
    ApiKey.DESCRIBE_LOG_DIRS: 5,
    ApiKey.DESCRIBE_QUORUM: 2,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_TRANSACTIONS: 2,
    ApiKey.OFFSET_DELETE: 0,
    ApiKey.SHARE_GROUP_DESCRIBE: 1,
    # Share groups (`ottla.queues`).
    ApiKey.SHARE_GROUP_HEARTBEAT: 1,
    ApiKey.SHARE_FETCH: 2,
    ApiKey.SHARE_ACKNOWLEDGE: 2,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 1,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: 0,
    # Transactions as before KIP-890: from these versions up a commit would change the producer's epoch, and the one
    # that ends a transaction here is not the one that wrote it.
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.END_TXN: 3,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.API_VERSIONS: 0,
}

PREFIX_BYTES: Final = SIZE_BYTES
"""Length prefix of a frame."""

_HANDSHAKE_BYTES: Final = 1024 * 1024
"""The largest response before the peer is known to be a broker and, with SASL, to know the password too."""

_TLS_ALERT: Final = b"\x15\x03"
"""How a TLS server begins to refuse what is not TLS (RFC 8446, section 5.1)."""


class _Ticket(NamedTuple):
    api_key: ApiKey
    version: int
    correlation_id: int


class RequestPipeline:
    """The requests in flight of one connection, in the order in which their responses come."""

    def __init__(self, *, address: str, client_id: str) -> None:
        self._address = address
        self._client_id = client_id
        self._pending: deque[_Ticket] = deque()
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {ApiKey.API_VERSIONS: (0, 0)}
        self._shared: dict[tuple[ApiKey, int | None], int | None] = {}
        """Cache of the version shared with the broker, by API: it is needed for each request."""
        self._most_bytes: int | None = None

    @property
    def in_flight(self) -> int:
        """Return how many requests wait for their response."""
        return len(self._pending)

    def negotiated(self, versions: dict[int, tuple[int, int]]) -> None:
        """Set the (oldest, newest) version of each API that the broker serves."""
        self._versions = versions
        self._shared.clear()

    def let_in(self, *, most_bytes: int) -> None:
        """Allow responses of so many bytes (`receive.message.max.bytes`): the handshake has ended."""
        self._most_bytes = most_bytes

    def clear(self) -> None:
        """Drop the requests in flight: the connection is closed."""
        self._pending.clear()

    @property
    def served(self) -> Mapping[int, tuple[int, int]]:
        """The (oldest, newest) version of each API that the broker serves, by API key."""
        return self._versions

    def supports(self, api_key: ApiKey) -> bool:
        """Return whether the broker serves this API in a version this client speaks."""
        return self._shared_version(api_key) is not None

    def version(self, api_key: ApiKey, newest: int | None = None) -> int:
        """Return the version both sides speak. `newest` is the newest that the caller is written for (`NEWEST` if
        None)."""
        version = self._shared_version(api_key, newest)
        if version is None:
            spoken = schemas.request(api_key).versions
            last = min(NEWEST[api_key] if newest is None else newest, spoken.last)
            raise api_not_served(self._address, api_key, self._versions, range(spoken.first, last + 1))
        return version

    def request(
        self, api_key: ApiKey, body: dict[str, Any] | bytes, *, expects_response: bool = True, newest: int | None = None
    ) -> bytes:
        """Return the bytes of a request, which is in flight from now on if it expects a response.

        `body`: encoded, if it is bytes. `newest`: the newest version that `body` and the caller are written for, where
        that is not `NEWEST`.
        """
        version = self._shared.get((api_key, newest))
        if version is None:  # not asked for yet, or not served
            version = self.version(api_key, newest)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            frame = headers.encode_request_frame(api_key, version, self._correlation_id, self._client_id, body)
        except SchemaError as error:
            if isinstance(error.__context__, UnicodeError):  # a name that somebody gave, of a file or an argument
                raise InputError(f"found text that is not valid Unicode: {error}") from None
            raise
        if expects_response:
            self._pending.append(_Ticket(api_key, version, self._correlation_id))
        return frame

    def frame_size(self, prefix: bytes) -> int:
        """Return how many bytes follow the four of `prefix`."""
        most_bytes = _HANDSHAKE_BYTES if self._most_bytes is None else self._most_bytes
        try:
            return frame_size(prefix, 0, most_bytes) or 0
        except FrameTooLarge as error:
            if self._most_bytes is None:
                raise self._not_a_broker(prefix, error) from None
            raise ResponseTooLarge(
                f"{self._address}: the response to {self._pending[0].api_key.name} announces"
                f" {int.from_bytes(prefix, 'big'):,} bytes, receive.message.max.bytes allows {most_bytes:,}:"
                " ask for less or allow more"
            ) from None
        except ProtocolError as error:
            raise self._not_a_broker(prefix, error) from None

    def response(self, frame: bytes | bytearray) -> Any:
        """Return the response to the oldest request in flight. Record fields are slices of `frame`, not copies."""
        ticket = self._pending.popleft()
        try:
            found, offset = headers.decode_response_header(ticket.api_key, ticket.version, frame)
            if found == ticket.correlation_id:
                return codec.response_decoder(ticket.api_key, ticket.version)(frame, offset)[0]
            problem = f"response {found} came where {ticket.correlation_id} was due"
        except ProtocolError as error:
            problem = str(error)
        raise BrokerUnavailable(
            f"{self._address} answered {ticket.api_key.name} with bytes that are not its response: {problem};"
            " connection dropped"
        )

    def _shared_version(self, api_key: ApiKey, written_for: int | None = None) -> int | None:
        asked = api_key, written_for
        if asked not in self._shared:
            self._shared[asked] = self._find_version(api_key, written_for)
        return self._shared[asked]

    def _find_version(self, api_key: ApiKey, written_for: int | None) -> int | None:
        if api_key not in self._versions:
            return None
        oldest, newest = self._versions[api_key]
        known = schemas.request(api_key).versions
        version = min(newest, NEWEST[api_key] if written_for is None else written_for, known.last)
        return version if version >= max(oldest, known.first) else None

    def _not_a_broker(self, prefix: bytes, error: ProtocolError) -> BrokerUnavailable:
        speaks = ""
        if prefix == b"HTTP":
            speaks = ": it speaks HTTP"
        elif prefix[:2] == _TLS_ALERT:
            speaks = ": it speaks TLS"
        return BrokerUnavailable(f"{self._address} sent {prefix!r} where a response starts{speaks} ({error.problem})")
