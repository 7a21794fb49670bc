"""HTTP to a schema registry: one JSON request, tried on each address with jittered back-off.

What an answer means is decided here once:
- an error that the registry itself reports about the request (`error_code` 4xxxx) is an answer: `RegistryRefused`;
- everything else (no connection, a time-out, HTTP 5xx or 429, credentials refused, a proxy's own 404 page) says nothing
  about the schema, so it is `RegistryUnavailable`, and no record becomes a dead letter because of it.
"""

from __future__ import annotations

import base64
import json
import random
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ConfigError, RegistryUnavailable

if TYPE_CHECKING:
    import http.client
    import ssl

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

_MOST_BYTES: Final = 16 * 1024 * 1024
_NOT_FOUND: Final = 404
_WORTH_ANOTHER_TRY: Final = frozenset({408, 429, 500, 502, 503, 504})


class RegistryRefused(Exception):
    """The registry's own answer to a request it will not fulfil: its error code and message."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(f"{message} (error {code})")

    @property
    def is_not_found(self) -> bool:
        """Codes 40401 to 40499: no such subject, version or schema."""
        return self.code // 100 == _NOT_FOUND


class RegistryHttp:
    """Sends requests to the first address that answers. Keeps no connection: the answers are cached for ever."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        user: str | None = None,
        password: str | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 5.0,
        attempts: int = 3,
        backoff_s: float = 0.1,
        sleep: Callable[[float], None] = time.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        given = [url.strip().rstrip("/") for url in urls]
        self._parts = [_split(url, shown=without_credentials(",".join(given))) for url in given]
        self.urls = tuple(_shown(parts) for parts in self._parts)
        """The addresses without credentials, as errors and logs show them."""
        self._tls = tls
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._backoff_s = backoff_s
        self._sleep = sleep
        self._uniform = uniform
        self._headers = {"Accept": CONTENT_TYPE, "Content-Type": CONTENT_TYPE, **(headers or {})}
        credentials = f"{user}:{password or ''}" if user is not None else _credentials(self._parts)
        if credentials is not None:
            self._headers["Authorization"] = "Basic " + base64.b64encode(credentials.encode()).decode()

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The decoded JSON answer. Raises `RegistryRefused` or `RegistryUnavailable`."""
        from http.client import HTTPException  # with ssl behind it 20 ms, which programs without a registry save

        problem = ""
        for attempt in range(self._attempts):
            if attempt:
                # Full jitter: clients that lost the registry together do not come back together.
                self._sleep(self._uniform(0, self._backoff_s * 2**attempt))
            for url, parts in zip(self.urls, self._parts, strict=True):
                try:
                    status, answer = self._once(parts, method, path, body)
                except (OSError, HTTPException) as error:
                    problem = f"{url}: {type(error).__name__}: {error}"
                    continue
                if 200 <= status < 300 and answer is not None:
                    return answer
                problem = f"{url}{path}: HTTP {status}"
                if status in _WORTH_ANOTHER_TRY:
                    continue
                if isinstance(answer, dict) and len(str(answer.get("error_code", ""))) == 5:
                    raise RegistryRefused(int(answer["error_code"]), str(answer.get("message", "")))
                if isinstance(answer, dict) and status in (409, 422):
                    raise RegistryRefused(status * 100, str(answer.get("message", "")))
                advice = (
                    ": check user and password"
                    if status in (401, 403)
                    else ", and not the response of a schema registry"
                )
                raise RegistryUnavailable(f"schema registry: {problem}{advice}")
        raise RegistryUnavailable(f"schema registry did not respond, tried {self._attempts} times: {problem}")

    def _once(
        self, parts: urllib.parse.SplitResult, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, Any]:
        import http.client

        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=self._timeout_s, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=self._timeout_s)
        try:
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, parts.path + path, body=payload, headers=self._headers)
            response = connection.getresponse()
            raw = self._body_of(response)
        finally:
            connection.close()
        try:
            return response.status, json.loads(raw)
        except (ValueError, RecursionError):
            return response.status, None

    def _body_of(self, response: http.client.HTTPResponse) -> bytes:
        """All of it, within the time and the size that an answer may have. (The connection's own time-out begins anew
        with every byte.)"""
        deadline_s = time.monotonic() + self._timeout_s
        body = bytearray()
        while chunk := response.read1(65_536):
            body += chunk
            if len(body) > _MOST_BYTES:
                raise OSError(f"the response is longer than {_MOST_BYTES:,} bytes")
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the response was not complete after {self._timeout_s:g} s")
        if response.length:
            raise OSError(f"the response ended {response.length:,} bytes too early")
        return bytes(body)


def without_credentials(urls: str) -> str:
    """URLs as an error may show them that cannot be parsed: nothing between the scheme and the last `@`."""
    return re.sub(r"^(\w+://)?.*@", r"\1", urls, flags=re.DOTALL)


def _split(url: str, *, shown: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    # A password with one of these in it ends the host's part for a parser, and would be taken for a path.
    if not is_whole or "@" in parts.path + parts.query + parts.fragment:
        raise ConfigError(
            f"schema registry URL {shown!r}: wanted http://host:port or https://host:port"
            " (in credentials, '/', '?', '#' and ',' are written %2F, %3F, %23 and %2C)"
        )
    return parts


def _shown(parts: urllib.parse.SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _credentials(parts: Sequence[urllib.parse.SplitResult]) -> str | None:
    for part in parts:
        if part.username is not None:
            return f"{urllib.parse.unquote(part.username)}:{urllib.parse.unquote(part.password or '')}"
    return None
