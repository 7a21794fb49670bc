"""HTTP to a schema registry: one JSON request, tried on each address with jittered back-off.

What a response means is decided here once (`refusal_in`):
- the registry's own answer that it does not have what was asked for (HTTP 404 with `error_code` 404xx), or that what
  was given to it is not acceptable (409 and 422 with a code of theirs), is `RegistryRefused`;
- everything else (no connection, a time-out, HTTP 5xx or 429, credentials or rights refused, a mode of maintenance, a
  proxy's own 404 page) says nothing about the schema, so it is `RegistryUnavailable`, and no record becomes a dead
  letter because of it.
"""

from __future__ import annotations

import base64
import json
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ConfigError, RegistryUnavailable
from ottla.foreign_json import read_json
from ottla.quantities import count, seconds
from ottla.retrying import try_again

if TYPE_CHECKING:
    import ssl

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

_NOT_FOUND: Final = 404
_REFUSALS: Final = frozenset({_NOT_FOUND, 409, 422})
_IN_MAINTENANCE: Final = frozenset({42205, 42206})
"""The subject, or the registry, does not take schemas now; references cannot be deleted."""
_LONGEST_S: Final = 5.0
_WORTH_ANOTHER_TRY: Final = frozenset({408, 429, 500, 502, 503, 504})
_LONGEST_TIMEOUT_S: Final = 3_600
_MOST_ATTEMPTS: Final = 100
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class RegistryRefused(Exception):
    """The registry's own answer to a request it will not fulfil: its error code and message."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(f"{message} (error {code})")

    @property
    def is_not_found(self) -> bool:
        """Return whether it is one of 40401 to 40499: no such subject, version or schema."""
        return self.code // 100 == _NOT_FOUND


def refusal_in(status: int, answer: Any) -> RegistryRefused | None:
    """Return the refusal in a response, or None if it says nothing about a schema."""
    code = answer.get("error_code") if isinstance(answer, dict) else None
    if status not in _REFUSALS or type(code) is not int or code in _IN_MAINTENANCE:
        return None
    is_plain = code == status and status != _NOT_FOUND  # a plain 404 is an unknown path: a wrong address
    if not is_plain and code // 100 != status:
        return None
    return RegistryRefused(code * 100 if is_plain else code, str(answer.get("message", "")))


class _NoAnswerError(Exception):
    """No address has answered; a later try may be answered."""


class RegistryHttp:
    """Sends requests to the first address that answers. Keeps no connection: the answers are cached for ever.

    Each address has the credentials in its own URL; `user` and `password` are for those that have none.
    `timeout_s` is for one exchange with one address as a whole.
    """

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
    ) -> None:
        given = [url.strip().rstrip("/") for url in urls]
        self._parts = [_split(url, shown=without_credentials(",".join(given))) for url in given]
        self.urls = tuple(_shown(parts) for parts in self._parts)
        """The addresses without credentials, as errors and logs show them."""
        if password is not None and user is None:
            raise ConfigError("schema registry: found password= without user=, wanted both")
        self._tls = tls
        self._timeout_s = seconds("schema registry", "timeout_s", timeout_s, above=0, most=_LONGEST_TIMEOUT_S)
        self._attempts = count("schema registry", "attempts", attempts, most=_MOST_ATTEMPTS)
        self._backoff_s = backoff_s
        self._sleep = sleep
        common = {"Accept": CONTENT_TYPE, "Content-Type": CONTENT_TYPE, **_checked(headers or {})}
        shared = None if user is None else f"{user}:{password or ''}"
        self._headers = [_with_credentials(common, _credentials(parts) or shared) for parts in self._parts]

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the decoded JSON answer. Raises `RegistryRefused` or `RegistryUnavailable`."""
        try:
            return try_again(
                lambda: self._ask_each(method, path, body),
                what="schema registry",
                errors=_NoAnswerError,
                first_s=2 * self._backoff_s,
                longest_s=_LONGEST_S,
                attempts=self._attempts,
                sleep=self._sleep,
            )
        except _NoAnswerError as error:
            raise RegistryUnavailable(
                f"schema registry did not respond, tried {self._attempts} times: {error}"
            ) from None

    def _ask_each(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        """Return the answer of the first address that has one. Raises `_NoAnswerError` if a later try may help."""
        problem, may_come_back = "", False
        for url, parts, headers in zip(self.urls, self._parts, self._headers, strict=True):
            try:
                status, answer = self._once(parts, headers, method, path, body)
            except Exception as error:  # a name that is none is a UnicodeError: whatever it is, it is no answer
                problem = f"{url}: {type(error).__name__}: {error}"
                may_come_back = True
                continue
            if 200 <= status < 300 and answer is not None:
                return answer
            refusal = refusal_in(status, answer)
            if refusal is not None:
                raise refusal
            problem = f"{url}{path}: HTTP {status}{_said(answer)}{_advice(status)}"
            may_come_back = may_come_back or status in _WORTH_ANOTHER_TRY
        if may_come_back:
            raise _NoAnswerError(problem)
        raise RegistryUnavailable(f"schema registry: {problem}")

    def _once(
        self,
        parts: urllib.parse.SplitResult,
        headers: Mapping[str, str],
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
    ) -> tuple[int, Any]:
        # With http.client and ssl behind it 20 ms, which programs without a registry save.
        from ottla.http_exchange import MOST_BYTES, exchange

        payload = None if body is None else json.dumps(body).encode()
        status, raw = exchange(
            parts, method, parts.path + path, body=payload, headers=headers, tls=self._tls, timeout_s=self._timeout_s
        )
        try:
            return status, read_json(raw, most_bytes=MOST_BYTES)
        except ValueError:
            return status, None


def _said(answer: Any) -> str:
    """Return the registry's own words about an outage, if it has any."""
    if not isinstance(answer, dict) or "error_code" not in answer:
        return ""
    return f" ({answer['error_code']!r}: {answer.get('message')!r})"[:300]


def _advice(status: int) -> str:
    if status in (401, 403):
        return ": check user and password, and what that user may read"
    return "" if status in _WORTH_ANOTHER_TRY else ", and not the response of a schema registry"


def without_credentials(urls: str) -> str:
    """Return a URL that cannot be parsed without the text between the scheme and the last `@`, so that an error may
    show it."""
    return re.sub(r"^(\w+://)?.*@", r"\1", urls, flags=re.DOTALL)


def _split(url: str, *, shown: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_whole = is_whole and parts.path.isascii() and not re.search(r"[\x00-\x20\x7f]", url)
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


def _credentials(parts: urllib.parse.SplitResult) -> str | None:
    if parts.username is None:
        return None
    return f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"


def _with_credentials(headers: Mapping[str, str], credentials: str | None) -> dict[str, str]:
    if credentials is None:
        return dict(headers)
    try:
        encoded = base64.b64encode(credentials.encode()).decode()
    except UnicodeEncodeError:
        raise ConfigError("schema registry: user and password (not shown) are not text that UTF-8 can hold") from None
    return {**headers, "Authorization": f"Basic {encoded}"}


def _checked(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers if HTTP can carry them. Otherwise each request would fail, with the value in the error."""
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"schema registry headers: found the name {name!r}, wanted the name of an HTTP header")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise ConfigError(
                f"schema registry headers: the value of {name} (not shown) is not text on one line in Latin-1;"
                " a secret that was read from a file often ends in a line break"
            )
    return headers
