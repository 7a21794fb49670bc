"""A small token endpoint for tests: it issues tokens, rotates its keys, fails and waits when a test says so.

    with oidc_endpoint(clock=kafka.cluster.clock) as endpoint:
        settings = endpoint.settings()               # of a client: where its tokens are had
        endpoint.fail(503)                           # until `endpoint.recover()`
        endpoint.rotate_keys(keep_old=False)         # what was issued before is not accepted any more

It answers `POST /token` (client credentials by secret or by a signed assertion, and the grant of an assertion),
`GET /jwks` and `GET /.well-known/openid-configuration`. Needs joserfc (`ottla[oauth]`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import secrets
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import PathLike
from types import MappingProxyType
from typing import Any, Final

from ottla.clock import Clock, SystemClock
from ottla.errors import ConfigError
from ottla.tokens.shared import forget_sources, set_clock
from ottla.tokens.token import Token

CLIENTS: Final = MappingProxyType({"alice": "alice-secret"})
_MOST_BYTES: Final = 256 * 1024
_LIFE_S: Final = 300.0


class OidcEndpoint:
    """A running endpoint. Use it from any thread; a context manager."""

    def __init__(
        self,
        *,
        clients: Mapping[str, str] = CLIENTS,
        public_keys: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        life_s: float = _LIFE_S,
        audience: str | None = None,
        certificate: str | PathLike[str] | None = None,
    ) -> None:
        """Create an issuer. `clients`: secrets by client id. `public_keys`: PEM by client id, of those that show an
        assertion. `life_s`: how long tokens are good, by `clock`. `certificate`: a PEM file with a chain and its key,
        for https."""
        self._jose = _jose()
        self.clients = dict(clients)
        self.public_keys = dict(public_keys or {})
        self.clock: Clock = clock or SystemClock()
        self.life_s = life_s
        self.audience = audience
        self.issued = 0
        """How many tokens it has issued."""
        self.asked = 0
        """How many requests for tokens have come, those included that failed."""
        self.forms: list[dict[str, str]] = []
        """The token requests in order, with their fields."""
        self._failure: tuple[int, dict[str, str]] | None = None
        self._go = threading.Event()
        self._go.set()
        self._waiting = threading.Semaphore(0)
        self._keys: list[Any] = []
        self.rotate_keys()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="oidc", daemon=True)
        self._thread.start()

    @property
    def issuer(self) -> str:
        """The `iss` claim of its tokens."""
        return f"{self._scheme}://localhost:{self._server.server_address[1]}"

    @property
    def token_url(self) -> str:
        """The URL of the token endpoint."""
        return f"{self.issuer}/token"

    @property
    def jwks_url(self) -> str:
        """The URL of its public keys."""
        return f"{self.issuer}/jwks"

    def settings(self, client: str | None = None, *, scope: str = "") -> dict[str, str]:
        """Return the client settings for tokens of this endpoint, beside `security.protocol`."""
        name = client or next(iter(self.clients))
        found = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.token_url,
            "sasl.oauthbearer.client.id": name,
            "sasl.oauthbearer.client.secret": self.clients[name],
        }
        return found | ({"sasl.oauthbearer.scope": scope} if scope else {})

    def issue(self, subject: str, *, life_s: float | None = None, **claims: Any) -> Token:
        """Return a token without a request. `claims` are added, or replace its own; None takes one away."""
        now_s = self.clock.now_ms() / 1000
        expires_at = now_s + (self.life_s if life_s is None else life_s)
        own: dict[str, Any] = {
            "iss": self.issuer,
            "sub": subject,
            "aud": self.audience,
            "iat": now_s,
            "exp": expires_at,
        }
        own |= {"jti": secrets.token_hex(8), **claims}
        key = self._keys[0]
        value = self._jose.jwt.encode(
            {"alg": "ES256", "kid": key.kid},
            {name: claim for name, claim in own.items() if claim is not None},
            key,
            algorithms=["ES256"],
        )
        return Token(value=value, expires_at=own["exp"], principal=subject)

    def rotate_keys(self, *, keep_old: bool = True) -> None:
        """Sign with a new key from now on. Tokens of the old keys are revoked: the JWKS no longer holds these keys."""
        kid = secrets.token_hex(8)
        key = self._jose.ECKey.generate_key("P-256", parameters={"kid": kid, "use": "sig"}, private=True)
        self._keys = [key, *(self._keys if keep_old else [])]

    def jwks(self) -> str:
        """Return its public keys, as JSON."""
        return json.dumps({"keys": [key.as_dict(private=False) for key in self._keys]})

    def fail(self, status: int = 503, error: str = "", description: str = "") -> None:
        """Answer every request for a token so, until `recover`. `error`: a code of RFC 6749, as `invalid_client`."""
        body = {"error": error, "error_description": description}
        self._failure = status, {name: text for name, text in body.items() if text}

    def recover(self) -> None:
        """Issue tokens again."""
        self._failure = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let requests for tokens wait while the block lasts."""
        self._go.clear()
        try:
            yield
        finally:
            self._go.set()

    def wait_for_a_held_request(self, *, timeout_s: float = 10.0) -> None:
        """Return when a request waits that no earlier call of this has returned for. TimeoutError if none comes."""
        if not self._waiting.acquire(timeout=timeout_s):
            raise TimeoutError(f"no request for a token came in {timeout_s:g} s")

    def close(self) -> None:
        """Stop. Safe to repeat."""
        self._go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> OidcEndpoint:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # --- what requests get

    def _answer(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        self.asked += 1
        self.forms.append(form)
        if not self._go.is_set():
            self._waiting.release()
            self._go.wait(60)
        if self._failure is not None:
            return self._failure
        client = self._client_of(form, authorization)
        if client is None:
            return 401, {"error": "invalid_client", "error_description": "unknown client, or not its secret"}
        self.issued += 1
        scope = form.get("scope")
        token = self.issue(client, scope=scope)
        return 200, {"access_token": token.value, "token_type": "Bearer", "expires_in": self.life_s, "scope": scope}

    def _client_of(self, form: dict[str, str], authorization: str) -> str | None:
        shown = form.get("client_assertion") or form.get("assertion")
        if shown is not None:
            return self._who_signed(shown)
        name, secret = form.get("client_id", ""), form.get("client_secret", "")
        if authorization.startswith("Basic "):
            try:
                name, _, secret = base64.b64decode(authorization[6:], validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                return None
        wanted = self.clients.get(name)
        return name if wanted is not None and secrets.compare_digest(wanted.encode(), secret.encode()) else None

    def _who_signed(self, assertion: str) -> str | None:
        now_s = self.clock.now_ms() // 1000
        for client, pem in self.public_keys.items():
            try:
                key, algorithms = self._jose.public_key(pem)
                found = self._jose.jwt.decode(assertion, key, algorithms=algorithms)
                wanted = {"sub": {"value": client}, "aud": {"value": self.token_url}, "exp": {"essential": True}}
                self._jose.jwt.JWTClaimsRegistry(now=now_s, leeway=0, **wanted).validate(found.claims)
            except (ValueError, self._jose.JoseError):
                continue
            return client
        return None


@contextlib.contextmanager
def oidc_endpoint(**options: Any) -> Iterator[OidcEndpoint]:
    """Start an endpoint, as `OidcEndpoint` takes it; the tokens of this process expire by its clock meanwhile."""
    with OidcEndpoint(**options) as endpoint, token_clock(endpoint.clock):
        yield endpoint


@contextlib.contextmanager
def token_clock(clock: Clock) -> Iterator[None]:
    """Let the tokens of this process expire, and sessions be renewed, by this clock while the block lasts."""
    forget_sources()
    set_clock(clock)
    try:
        yield
    finally:
        forget_sources()  # first: by the other clock a token may be over, and would be renewed
        set_clock(None)


class _Jose:
    """The used part of joserfc."""

    def __init__(self) -> None:
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import ECKey, RSAKey

        self.jwt: Any = jwt
        self.JoseError = JoseError
        self.ECKey: Any = ECKey
        self.RSAKey: Any = RSAKey

    def public_key(self, pem: str) -> tuple[Any, list[str]]:
        """Return (key, the algorithms that it verifies). Raises `JoseError` or ValueError if it is no public key."""
        try:
            return self.RSAKey.import_key(pem), ["RS256", "RS384", "RS512", "PS256"]
        except (ValueError, self.JoseError):
            return self.ECKey.import_key(pem), ["ES256", "ES384"]


def _jose() -> _Jose:
    try:
        return _Jose()
    except ImportError as error:
        raise ConfigError("ottla.testing.oidc needs joserfc: pip install 'ottla[oauth]'") from error


def _handler_of(endpoint: OidcEndpoint) -> type[BaseHTTPRequestHandler]:
    class OidcHandler(BaseHTTPRequestHandler):
        timeout = 30
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "0")
            size = int(length) if length.isascii() and length.isdigit() and len(length) < 9 else 0
            body = self.rfile.read(min(size, _MOST_BYTES)).decode("utf-8", "replace")
            form = dict(urllib.parse.parse_qsl(body))
            if self.path != "/token":
                self._send(404, {"error": "not_found"})
                return
            self._send(*endpoint._answer(form, self.headers.get("Authorization", "")))

        def do_GET(self) -> None:
            if self.path == "/jwks":
                self._send(200, json.loads(endpoint.jwks()))
            elif self.path == "/.well-known/openid-configuration":
                found = {"issuer": endpoint.issuer, "token_endpoint": endpoint.token_url, "jwks_uri": endpoint.jwks_url}
                self._send(200, found)
            else:
                self._send(404, {"error": "not_found"})

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:
            """Log nothing: the line would contain the request."""

    return OidcHandler
