"""Where a listener listens: `host:port`, or with `mqtt://`, `mqtts://`, `ws://` or `wss://` before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.errors import ConfigError

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 8083, "wss": 8084}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """One address."""

    scheme: str
    host: str
    port: int

    @property
    def is_tls(self) -> bool:
        """Return whether connections begin with TLS."""
        return self.scheme in ("mqtts", "wss")

    @property
    def is_web(self) -> bool:
        """Return whether MQTT comes in WebSocket frames."""
        return self.scheme in ("ws", "wss")

    def with_port(self, port: int) -> str:
        """Return the address with the port that was taken."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{port}"

    def __str__(self) -> str:
        return self.with_port(self.port)


def listen_address(text: str) -> ListenAddress:
    """Return the address. Raises `ConfigError`."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "mqtt", text
    if scheme not in _PORTS:
        raise ConfigError(f"--listen: found {text!r}, wanted mqtt, mqtts, ws or wss before ://")
    host, _, port = rest.rpartition(":") if not rest.endswith("]") else (rest, "", "")
    if not host:
        host, port = (rest, "") if not port.isdigit() else ("0.0.0.0", port)
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    is_port = not port or (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65_536)
    if not host or not is_port or (":" in host and not is_bracketed):
        raise ConfigError(
            f"--listen: found {text!r}, wanted host:port with a port of 0 to 65535; an IPv6 address is in brackets"
        )
    return ListenAddress(scheme=scheme, host=host, port=int(port) if port else _PORTS[scheme])
