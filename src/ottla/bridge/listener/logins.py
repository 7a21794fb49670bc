"""Who may publish: users of a file, client certificates, or a function of the program."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.bridge.users import Users
from ottla.telemetry import log_event


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """What a client says of itself."""

    client_id: str
    username: str | None
    password: bytes | None = field(repr=False)
    certificate_name: str | None
    """The common name of its certificate, which was verified."""
    address: str


Authenticate = Callable[[Login], "bool | Awaitable[bool]"]


class Logins:
    """Decides about logins. With neither users nor a function everybody may publish."""

    def __init__(self, users: Users | None, function: Authenticate | None, *, has_client_ca: bool = False) -> None:
        """`has_client_ca`: clients of a TLS listener have certificates, whose names are not for other clients."""
        self.users = users
        self._function = function
        self._has_client_ca = has_client_ca

    @property
    def is_open(self) -> bool:
        """Return whether everybody may publish."""
        return self.users is None and self._function is None

    def user(self, username: str | None, certificate_name: str | None) -> str:
        """Return the name of a client that was admitted, or nothing. An unchecked user name could be the common name of
        another client's certificate, so it is ignored where there are certificates."""
        if self.is_open and self._has_client_ca:
            username = None
        return username or certificate_name or ""

    async def admits(self, login: Login) -> bool:
        """Return whether this client may publish. What a function raises is logged, and is no admission."""
        if self.users is not None and not await asyncio.to_thread(self.users.is_known, login.username, login.password):
            return False
        if self._function is None:
            return True
        try:
            answer: Any = self._function(login)
            if inspect.isawaitable(answer):
                answer = await answer
            return answer is True
        except Exception as error:
            log_event("bridge_login_failed", "error", {"client": login.client_id, "error": f"{error!r}"})
            return False


def common_name(certificate: dict[str, Any] | None) -> str | None:
    """Return the common name of a peer's certificate, as `ssl` gives it."""
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return None
