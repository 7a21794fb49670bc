"""The token source of a process, with its threads: however many clients ask, one fetch is in flight.

    tokens = tokens_of(token_settings(settings))
    token = tokens.get()                        # may wait for a fetch
    token = await tokens.get_async()

A fetch runs in a short-lived thread, because librdkafka, a blocking socket and an event loop wait for the same one. A
timer starts the next one ahead of time: a client that loses its connection during an outage of the endpoint then has a
token that is as new as can be.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FetchTimeout
from typing import Any, Final

from ottla.clock import Clock, SystemClock
from ottla.errors import ConfigError, OttlaError
from ottla.raising import again
from ottla.telemetry import log_event
from ottla.tokens.errors import TokenUnavailable
from ottla.tokens.settings import TokenSettings
from ottla.tokens.source import TokenSource
from ottla.tokens.token import Token

WAIT_S: Final = 15.0
"""How long a client waits for a token: longer than one fetch may take."""

_MOST_TIMER_S: Final = 3_600.0
_LEAST_TIMER_S: Final = 0.05
_UNASKED: Final = 100
"""After so many fetches without a client that asks, the source rests until the next one asks."""

Fetch = Callable[[], Token]

_random: Final = random.SystemRandom()
"""Not the module's generator: a thread that draws from it would change what a seeded program draws."""

_clock: Clock = SystemClock()


def current_clock() -> Clock:
    """Return the clock by which tokens expire and sessions are renewed."""
    return _clock


def set_clock(clock: Clock | None) -> None:
    """Let tokens expire by another clock than the machine's; None for that one. For tests (`ottla.testing.oauth`)."""
    global _clock
    _clock = clock or SystemClock()


class Tokens:
    """One source of tokens, for every client of the process that has the same settings."""

    def __init__(self, settings: TokenSettings, fetch: Fetch) -> None:
        self.settings = settings
        self._fetch = fetch
        self._source = TokenSource(name=settings.name)
        self._lock = threading.Lock()
        self._in_flight: Future[Token] | None = None
        self._timer: threading.Timer | None = None
        self._unasked = 0

    def __repr__(self) -> str:
        return f"Tokens({self.settings.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process has a source of its own."""
        return tokens_of, (self.settings,)

    @property
    def name(self) -> str:
        """The origin of the tokens, as messages name it."""
        return self.settings.name

    def get(self, *, timeout_s: float = WAIT_S) -> Token:
        """Return a valid token, fetched if necessary. Raises TokenUnavailable if there is none and the endpoint does
        not respond, TokenRefused or ConfigError if it refuses."""
        found = self._ask()
        if isinstance(found, Token):
            return found
        try:
            return found.result(timeout_s)
        except FetchTimeout:
            raise self._late(timeout_s) from None
        except OttlaError as error:
            raise again(error) from None

    async def get_async(self, *, timeout_s: float = WAIT_S) -> Token:
        """Get a token as `get` does, without blocking the event loop."""
        found = self._ask()
        if isinstance(found, Token):
            return found
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(found)), timeout_s)
        except TimeoutError:
            raise self._late(timeout_s) from None
        except OttlaError as error:
            raise again(error) from None

    def outage(self) -> TokenUnavailable | None:
        """Why a login that fails now may succeed soon; None where it will not."""
        with self._lock:
            now_ms = _clock.now_ms()
            if not self._source.is_in_trouble(now_ms):
                return None
            error = self._source.error if self._source.token(now_ms) is None else None
        if isinstance(error, TokenUnavailable):
            return TokenUnavailable(str(error))
        return TokenUnavailable(f"{self.name}: the token that a client has is not the newest")

    def was_refused(self, token: Token) -> None:
        """Record that a broker refused this token: the next caller gets a new one."""
        with self._lock:
            self._source.token_refused(token)

    def _ask(self) -> Token | Future[Token]:
        """Return a good token, else the fetch that will bring one. Raises the last failure during the pause after
        it."""
        with self._lock:
            self._unasked = 0
            now_ms = _clock.now_ms()
            if self._source.should_fetch(now_ms):
                self._begin(now_ms)
            token = self._source.token(now_ms)
            if token is not None:
                return token
            if self._in_flight is not None:
                return self._in_flight
            error = self._source.error
        raise again(error) if error is not None else TokenUnavailable(f"{self.name}: there is no token yet")

    def _begin(self, now_ms: int) -> None:
        self._source.fetch_begins(now_ms)
        future: Future[Token] = Future()
        self._in_flight = future
        self._unasked += 1
        threading.Thread(target=self._run, args=(future,), name="ottla-token", daemon=True).start()

    def _run(self, future: Future[Token]) -> None:
        try:
            token: Token | OttlaError = self._fetch()
        except OttlaError as error:
            token = error
        except Exception as error:
            # Its type alone: what a callback says may hold a secret.
            token = TokenUnavailable(f"{self.name}: failed with {type(error).__name__}")
            token.__cause__ = None
        with self._lock:
            if self._in_flight is not future:
                return  # of before a fork
            self._in_flight = None
            now_ms = _clock.now_ms()
            before = self._source.token(now_ms)
            if isinstance(token, Token):
                try:
                    self._source.token_arrived(token, now_ms)
                except TokenUnavailable as error:
                    token = error
            if not isinstance(token, Token):
                self._source.fetch_failed(token, now_ms, chance=_random.random())
                self._log_failure(token, before, now_ms)
            if before is not None or not isinstance(token, ConfigError):
                self._set_timer(now_ms)
            # else: a setting or a secret to be fixed, and no token to renew. The next client that asks tries again.
        if isinstance(token, Token):
            future.set_result(token)
        elif before is not None:
            future.set_result(before)
        else:
            future.set_exception(token)

    def _log_failure(self, error: OttlaError, token: Token | None, now_ms: int) -> None:
        good_s = 0 if token is None else (token.expires_ms - now_ms) / 1000
        fields = {"source": self.name, "error": str(error), "token_good_for_s": round(good_s)}
        log_event("token_not_renewed", "warning" if token is not None else "error", fields)

    def _set_timer(self, now_ms: int) -> None:
        """Renew ahead of time. Who holds the source holds the timer: neither keeps the other."""
        left_s = (self._source.next_fetch_ms - now_ms) / 1000
        this = weakref.ref(self)

        def wake() -> None:
            tokens = this()
            if tokens is not None:
                tokens._renew()

        self._timer = threading.Timer(min(max(left_s, _LEAST_TIMER_S), _MOST_TIMER_S), wake)
        self._timer.daemon = True
        self._timer.name = "ottla-token-timer"
        self._timer.start()

    def _renew(self) -> None:
        with self._lock:
            now_ms = _clock.now_ms()
            if self._unasked >= _UNASKED or self._source.is_fetching:
                return
            if self._source.should_fetch(now_ms):
                self._begin(now_ms)
            else:
                self._set_timer(now_ms)

    def _rest(self) -> None:
        """Renew no more, until a client asks."""
        with self._lock:
            self._unasked = _UNASKED
            if self._timer is not None:
                self._timer.cancel()

    def _late(self, timeout_s: float) -> TokenUnavailable:
        return TokenUnavailable(f"{self.name}: no token in {timeout_s:g} s")

    def _carried_over_a_fork(self) -> None:
        """Replace lock and fetch after a fork: threads are not carried over, so a fetch in flight would never end."""
        self._lock = threading.Lock()
        self._in_flight = None
        self._timer = None
        self._source.fetch_lost()


_sources: weakref.WeakValueDictionary[TokenSettings, Tokens] = weakref.WeakValueDictionary()
_recent: deque[Tokens] = deque(maxlen=16)
"""Kept although no client has them any more: the next one, a moment later, need not fetch."""
_registry_lock = threading.Lock()


def tokens_of(settings: TokenSettings) -> Tokens:
    """Return the process's source for these settings."""
    with _registry_lock:
        found = _sources.get(settings)
        if found is None:
            from ottla.tokens.providers import fetch_of

            found = _sources[settings] = Tokens(settings, fetch_of(settings))
        if found not in _recent:
            _recent.append(found)
        return found


def forget_sources() -> None:
    """Let the next client of each source fetch again. For tests: a source outlives the clients that used it."""
    with _registry_lock:
        for tokens in list(_sources.values()):
            tokens._rest()
        _sources.clear()
        _recent.clear()


def _after_fork() -> None:
    global _registry_lock
    _registry_lock = threading.Lock()
    for tokens in list(_sources.values()):
        tokens._carried_over_a_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
