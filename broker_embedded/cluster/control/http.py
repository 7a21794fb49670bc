"""The part of HTTP/1.1 that a control API on loopback needs: one request per connection, JSON in both directions.

A web page must not be able to make a browser on the same machine control a cluster. So requests for another host than
loopback (a name that resolves to it, for example) and requests from pages of another origin are refused.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from broker_embedded.cluster.metrics import CONTENT_TYPE
from ottla_wire.facts import fact

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 1024 * 1024
LARGEST = 2**63 - 1
"""The largest number in a request: no offset is larger."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class HttpError(Exception):
    """An error response. `found` and `wanted` are included if set."""

    def __init__(self, status: HTTPStatus, message: str, *, found: Any = None, wanted: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"error": message}
        if found is not None or wanted is not None:
            self.body.update(found=found, wanted=wanted)


@fact
class HttpRequest:
    """One request, read whole."""

    method: str
    path: tuple[str, ...]
    query: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Return the request, or None if the client went away. HttpError for one that is not served."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise HttpError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"head: found more than {MAX_HEAD_BYTES} bytes"
        ) from None
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise HttpError(HTTPStatus.BAD_REQUEST, f"request line: found {lines[0]!r}, wanted METHOD TARGET HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    check_sender(headers)
    try:
        target = urlsplit(words[1])
    except ValueError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"target: found {words[1]!r}, wanted a path: {error}") from None
    stated = headers.get("content-length", "0")
    size = int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 10 else -1
    if not 0 <= size <= MAX_BODY_BYTES or "transfer-encoding" in headers:
        raise HttpError(
            HTTPStatus.BAD_REQUEST,
            f"content-length: found {headers.get('content-length')}, wanted 0 to {MAX_BODY_BYTES}",
        )
    try:
        raw = await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return None
    return HttpRequest(
        method=words[0],
        path=tuple(unquote(part) for part in target.path.split("/") if part),
        query=dict(parse_qsl(target.query, keep_blank_values=True)),
        body=_object(raw),
    )


def check_sender(headers: dict[str, str]) -> None:
    """Raise HttpError for a sender that is not on this machine, or is a page from elsewhere."""
    host = headers.get("host", "")
    if _host_of(host) not in LOOPBACK:
        raise HttpError(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"Host: found {host!r}, wanted a loopback address",
            found=host,
            wanted="127.0.0.1",
        )
    origin = headers.get("origin")
    if origin is not None and _hostname_of(origin) not in LOOPBACK:
        raise HttpError(
            HTTPStatus.FORBIDDEN, f"Origin: found {origin!r}, wanted none or a loopback one", found=origin, wanted=None
        )


def encode_response(status: HTTPStatus, body: Any) -> bytes:
    """Return the whole response; the connection ends after it. Text is Prometheus', anything else becomes JSON."""
    is_text = isinstance(body, str)
    content = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode() + b"\n"
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {CONTENT_TYPE if is_text else 'application/json'}",
        f"Content-Length: {len(content)}",
        "Connection: close",
        "Cache-Control: no-store",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content


def _hostname_of(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:  # "http://[" has no host
        return ""


def _host_of(host: str) -> str:
    """Return the host without the port; an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _object(raw: bytes) -> dict[str, Any]:
    if not raw.strip():
        return {}
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"body: not JSON: {error}") from None
    if not isinstance(body, dict):
        kind = type(body).__name__
        raise HttpError(HTTPStatus.BAD_REQUEST, f"body: found {kind}, wanted an object", found=kind, wanted="object")
    return body
