"""Who may ask the console what. `refusal` decides, purely; `Guard` enforces it around the whole server.

A browser on the same machine is not trusted, because any page that it shows can make it send requests here:

- the Host header must name an address of the console, or a page could reach it under a name of its own (DNS rebinding);
- an Origin, and a Sec-Fetch-Site, must be the console's own;
- everything under /api needs the token: as a cookie that only this site sends, or as `Authorization: Bearer`;
- a change is a POST of JSON with the token of the session in a header, and is refused unless changes are allowed.

The page and its scripts are public: they hold nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY_BYTES: Final = 2 * 1024 * 1024
LOGIN: Final = "/api/login"
TOKEN_HEADER: Final = "x-ottla-token"

_READING: Final = ("GET", "HEAD")

HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""On every response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """`hosts` are the Host headers that are the console, `token` is its secret."""

    hosts: frozenset[str]
    token: str = field(repr=False)
    scheme: str = "http"
    may_write: bool = False
    cookie: str = "ottla_console"

    @property
    def session(self) -> str:
        """Return the cookie's value, from which the token cannot be derived."""
        return self._derived("session")

    @property
    def write_token(self) -> str:
        """Return the token that a page sends with a change. Only readers of the console's responses know it."""
        return self._derived("write")

    def _derived(self, use: str) -> str:
        return hmac.new(self.token.encode(), use.encode(), "sha256").hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedRequest:
    """A request, as far as the guard looks at it. Header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]

    @property
    def is_api(self) -> bool:
        return self.path == "/api" or self.path.startswith("/api/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRefusal:
    """Why not, as an HTTP status and a sentence."""

    status: int
    reason: str


def refusal(asked: GuardedRequest, rules: Rules) -> RequestRefusal | None:
    """Return why this request is refused; None if it is allowed."""
    headers = asked.headers
    host = headers.get("host", "").lower()
    if host not in rules.hosts:
        return RequestRefusal(status=400, reason=f"Host: found {host[:100]!r}, wanted {', '.join(sorted(rules.hosts))}")
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"{rules.scheme}://{host}":
        return RequestRefusal(status=403, reason=f"Origin: found {origin[:100]!r}, wanted the console's own")
    if asked.method not in (*_READING, "POST"):
        return RequestRefusal(status=405, reason=f"method: found {asked.method[:20]!r}, wanted GET or POST")
    if not asked.is_api:
        return None if asked.method in _READING else RequestRefusal(status=405, reason="only /api takes a POST")
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", *(("none",) if asked.method in _READING else ())):
        return RequestRefusal(status=403, reason=f"Sec-Fetch-Site: found {site[:30]!r}, wanted same-origin")
    if asked.path == LOGIN:
        if asked.method != "POST":
            return RequestRefusal(status=405, reason="a login is a POST")
        is_known = _same(headers.get(TOKEN_HEADER, ""), rules.token)
        return None if is_known else RequestRefusal(status=401, reason="this is not the token of the console")
    if not _is_let_in(headers, rules):
        return RequestRefusal(status=401, reason="no token: open the address that `ottla console` printed")
    return None if asked.method in _READING else _refusal_of_change(headers, rules)


def _refusal_of_change(headers: Mapping[str, str], rules: Rules) -> RequestRefusal | None:
    if not rules.may_write:
        return RequestRefusal(status=403, reason="this console only reads: start it with --write")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        return RequestRefusal(status=415, reason=f"Content-Type: found {kind[:60]!r}, wanted application/json")
    given = headers.get(TOKEN_HEADER, "")
    if not (_same(given, rules.write_token) or _same(_bearer(headers), rules.token)):
        return RequestRefusal(status=403, reason="a change needs the token of the session in a header")
    return None


def _is_let_in(headers: Mapping[str, str], rules: Rules) -> bool:
    if _same(_bearer(headers), rules.token):
        return True
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == rules.cookie and _same(value, rules.session):
            return True
    return False


def _bearer(headers: Mapping[str, str]) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _same(found: str, wanted: str) -> bool:
    return hmac.compare_digest(found.encode("utf-8", "replace"), wanted.encode())


def hosts_of(addresses: Iterable[str], port: int) -> frozenset[str]:
    """Return the Host headers under which these addresses are reached."""
    found = set()
    for address in addresses:
        name = f"[{address}]" if ":" in address else address
        found.add(f"{name}:{port}".lower())
        if port in (80, 443):
            found.add(name.lower())
    return frozenset(found)


class Guard:
    """Responds to refused requests, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a web socket
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                more = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in there]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        refused = refusal(_asked(scope), self._rules)
        if refused is not None:
            await _answer(guarded, refused)
            return
        await self._app(scope, receive, guarded)


def _asked(scope: Scope) -> GuardedRequest:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        text = name.decode("latin-1").lower()
        if text == "host" and text in headers:
            headers[text] = ""  # given twice: ambiguous
        elif text == "cookie" and text in headers:
            headers[text] += "; " + value.decode("latin-1")
        else:
            headers[text] = value.decode("latin-1")
    return GuardedRequest(method=scope["method"], path=scope["path"], headers=headers)


async def _answer(send: Send, refused: RequestRefusal) -> None:
    body = error_body("Refused", refused.reason)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def error_body(kind: str, message: str, **more: Any) -> bytes:
    """Return the response body of every failed request."""
    return msgspec.json.encode({"error": {"type": kind, "message": message, **more}})
