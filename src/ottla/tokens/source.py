"""When a token is fetched, renewed and used. No clock, thread or network: `shared.py` carries it out.

    no token            fetch; whoever asks waits for it
    0 % to 80 %         the token is used
    80 % to its end     the token is used, and one fetch is under way; a failure is tried again after a pause
    past its end        as without a token: whoever asks waits for the fetch, or gets its failure at once while the
                        source pauses

One fetch is in flight at a time, however many clients ask. The pause doubles with each failure, up to half a minute,
and has some chance in it: the processes of a fleet do not come back to the endpoint at the same moment.
"""

from __future__ import annotations

from typing import Final

from ottla.tokens.errors import TokenUnavailable
from ottla.tokens.token import Token

RENEW_AT: Final = 0.8
"""The part of its life after which a token is renewed, as librdkafka and the Java client (sasl.login.refresh.window.
factor) do."""

FIRST_PAUSE_MS: Final = 500
MOST_PAUSE_MS: Final = 30_000
SPREAD_MS: Final = 15_000
"""librdkafka asks ten seconds after a failure: so long it may log in with the token before."""


class TokenSource:
    """The state of one source. Times are milliseconds since the epoch. Its caller holds a lock."""

    def __init__(self, *, name: str) -> None:
        """`name` is where tokens come from, for messages: never a secret."""
        self.name = name
        self.is_fetching = False
        self.failures = 0
        """Fetches since the last one that brought another token than before."""
        self.error: Exception | None = None
        """The error of the last fetch."""
        self._token: Token | None = None
        self._next_fetch_ms = 0
        self._began_ms = 0
        self._arrived_ms = -SPREAD_MS

    @property
    def next_fetch_ms(self) -> int:
        """When the next fetch is due."""
        return self._next_fetch_ms

    def token(self, now_ms: int) -> Token | None:
        """Return the last valid token, or None if there is none or it has expired."""
        found = self._token
        return found if found is not None and now_ms < found.expires_ms else None

    def is_in_trouble(self, now_ms: int) -> bool:
        """Return whether a login that fails now may succeed soon: no token is good, or clients may not have it yet."""
        return self.token(now_ms) is None or now_ms < self._arrived_ms + SPREAD_MS

    def should_fetch(self, now_ms: int) -> bool:
        """Return whether a fetch is due: there is none in flight, and no pause after a failure."""
        if self.is_fetching:
            return False
        was_set_back = now_ms < self._began_ms  # the wall clock: what was decided by it may be far in the future
        return now_ms >= self._next_fetch_ms or was_set_back

    def fetch_begins(self, now_ms: int) -> None:
        """Note that a fetch is in flight."""
        self.is_fetching = True
        self._began_ms = now_ms

    def token_arrived(self, token: Token, now_ms: int) -> None:
        """Use the token from now on. Raises TokenUnavailable if it has expired already."""
        if now_ms >= token.expires_ms:
            late_s = (now_ms - token.expires_ms) / 1000
            raise TokenUnavailable(
                f"{self.name}: the token expired {late_s:.0f} s before it arrived: is the clock of this machine right?"
            )
        is_new = self._token is None or token.value != self._token.value
        self.is_fetching = False
        self.error = None
        self._token = token
        if is_new:
            self.failures = 0
            self._arrived_ms = now_ms
            self._next_fetch_ms = now_ms + int((token.expires_ms - now_ms) * RENEW_AT)
        else:  # a file that its writer has not renewed yet: not worth an error, while the token lasts
            self.failures += 1
            self._next_fetch_ms = max(self._renewal_of_the_rest(token, now_ms), now_ms + self._pause_ms(0.5))

    def fetch_failed(self, error: Exception, now_ms: int, *, chance: float) -> None:
        """Pause after a failure. `chance` is from 0 to 1."""
        self.is_fetching = False
        self.error = error
        self.failures += 1
        self._next_fetch_ms = now_ms + self._pause_ms(chance)

    def token_refused(self, token: Token) -> None:
        """Use this token no more: a broker does not accept it. One that came since stays."""
        if self._token is not None and self._token.value == token.value:
            self._token = None
            self._next_fetch_ms = 0

    def fetch_lost(self) -> None:
        """Forget a fetch whose thread was not carried over a fork."""
        self.is_fetching = False

    def _pause_ms(self, chance: float) -> int:
        most = min(FIRST_PAUSE_MS << min(max(self.failures - 1, 0), 16), MOST_PAUSE_MS)
        return int(most * (0.5 + chance / 2))

    def _renewal_of_the_rest(self, token: Token, now_ms: int) -> int:
        """Return the time until the next attempt: a twentieth of the token's remaining life, so that a late renewal
        succeeds before it ends."""
        return now_ms + min((token.expires_ms - now_ms) // 20, MOST_PAUSE_MS)
