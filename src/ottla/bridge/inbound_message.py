"""A message of any road, before it is mapped to a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

from ottla.records import Header

NO_HEADERS: Final[tuple[Header, ...]] = ()


@dataclass(slots=True, eq=False, repr=False)
class Message:
    """What a publisher sent. `headers` are those that it gave itself, in order."""

    topic: str
    """The MQTT topic, or the AMQP routing key."""
    payload: bytes
    _: KW_ONLY
    client_id: str = ""
    user: str = ""
    origin: str = ""
    """The exchange of an AMQP message."""
    retain: bool = False
    headers: Sequence[Header] = NO_HEADERS
    content_type: str | None = None
    reply_to: str | None = None
    correlation: bytes | None = None
    expiry_ms: int | None = None
    """How long it is worth anything, in milliseconds from now."""
    message_id: str | None = None
    """What `ottla-id` is, if the road knows a name for the message that a repeated one has as well."""

    def with_payload(self, payload: bytes) -> Message:
        """Return a message that differs in its payload."""
        made = Message.__new__(Message)
        made.topic = self.topic
        made.payload = payload
        made.client_id = self.client_id
        made.user = self.user
        made.origin = self.origin
        made.retain = self.retain
        made.headers = self.headers
        made.content_type = self.content_type
        made.reply_to = self.reply_to
        made.correlation = self.correlation
        made.expiry_ms = self.expiry_ms
        made.message_id = self.message_id
        return made

    @property
    def is_plain(self) -> bool:
        """Return whether there is nothing but topic and payload."""
        return (
            not self.headers
            and not self.retain
            and self.content_type is None
            and self.reply_to is None
            and self.correlation is None
            and self.expiry_ms is None
            and self.message_id is None
        )
