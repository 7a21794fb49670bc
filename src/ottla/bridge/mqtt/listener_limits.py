"""Limits of a listener's connections."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.quantities import count, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """What one client may do.

    The memory of a connection is at most `max_waiting_bytes` for messages that wait, 64 KiB that is not read yet, and
    one packet of `max_packet_bytes` that is not complete.
    """

    receive_maximum: int = 100
    """QoS 1 and 2 messages without an acknowledgement."""
    max_packet_bytes: int = 1_048_576
    """Size of a packet, header included."""
    topic_alias_maximum: int = 32
    max_qos: int = 2
    max_session_expiry_s: int = 3_600
    """Longest time that QoS 2 state is kept for a client that is away."""
    max_unreleased: int = 1_000
    """QoS 2 messages that a client has not released."""
    max_waiting_bytes: int = 65_536
    """Bytes of messages that wait for the window, or for Kafka, before the socket is not read; and characters of topics
    that are kept for aliases."""
    max_client_id: int = 256
    """Characters of a client id."""
    connect_timeout_s: float = 10.0
    """Time from the beginning of a connection to its CONNECT."""
    max_keep_alive_s: int = 3_600
    """A client without a keep-alive is disconnected after 1.5 times this without a packet."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for a limit that cannot work."""
        for name, least, most in (
            ("receive_maximum", 1, 65_535),
            ("max_packet_bytes", 1_024, 268_435_455),
            ("topic_alias_maximum", 0, 65_535),
            ("max_qos", 0, 2),
            ("max_session_expiry_s", 0, 4_294_967_295),
            ("max_unreleased", 1, 65_535),
            ("max_waiting_bytes", 1, 2_147_483_647),
            ("max_client_id", 1, 65_535),
            ("max_keep_alive_s", 1, 2_147_483_647),
        ):
            count("ListenerLimits", name, getattr(self, name), least=least, most=most)
        seconds("ListenerLimits", "connect_timeout_s", self.connect_timeout_s, above=0)
