"""Claims in Redis: `pip install "ottla[redis]"`.

A message is the key `ottla:inbox:{consumer}:id`; the braces keep a consumer's keys in one slot of a cluster. Its value
is the owner of a claim, or `done`. Both run out by themselves.

An operation on a run is one script: one command, one round trip, and redis-py's instrumentors see it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from ottla.errors import ConfigError
from ottla.telemetry import log_event

try:
    import redis
    import redis.asyncio
except ImportError as problem:
    raise ConfigError("ottla.stores.Redis needs redis: pip install 'ottla[redis]'") from problem

_DONE: Final = "done"

# The response lists ids with other owners: mostly none. A client takes a microsecond for each number of an answer.
CLAIM: Final = """
local call, owner, lease, others = redis.call, ARGV[1], ARGV[2], {}
for i = 1, #KEYS do
  local key = KEYS[i]
  if not call('set', key, owner, 'NX', 'PX', lease) then
    if call('get', key) == owner then call('pexpire', key, lease) else others[#others + 1] = i end
  end
end
return others
"""

LOOK: Final = """
local states = {}
for i, key in ipairs(KEYS) do
  local value = redis.call('get', key)
  if not value then states[i] = -2
  elseif value == 'done' then states[i] = -1
  else states[i] = math.max(0, redis.call('pttl', key)) end
end
return states
"""

RENEW: Final = """
local kept = 0
for _, key in ipairs(KEYS) do
  if redis.call('get', key) == ARGV[1] then
    redis.call('pexpire', key, ARGV[2])
    kept = kept + 1
  end
end
return kept
"""

FINISH: Final = """
local call, window = redis.call, ARGV[1]
for i = 1, #KEYS do call('set', KEYS[i], 'done', 'PX', window) end
return 0
"""

RELEASE: Final = """
for _, key in ipairs(KEYS) do
  if redis.call('get', key) == ARGV[1] then redis.call('del', key) end
end
return 0
"""

_KEEPS_MARKS: Final = ("noeviction", "volatile-ttl")


class Redis:
    """A Redis server or cluster: `Redis("redis://localhost")`, or `Redis(client=..., async_client=...)` with yours.

    Marks are as durable as Redis is: a failover may forget the last second. A server that evicts keys when its memory
    is full would forget marks, so `maxmemory-policy` must be `noeviction` or `volatile-ttl`; this is checked where the
    server reports it. Raises `ConfigError` when neither a URL nor a client is given.
    """

    def __init__(
        self, url: str | None = None, *, client: Any = None, async_client: Any = None, prefix: str = "ottla:inbox:"
    ) -> None:
        if url is None and client is None and async_client is None:
            raise ConfigError("Redis: give a URL, or client= or async_client=")
        self._url = url
        self._client = client
        self._async_client = async_client
        self._prefix = prefix

    def claims(self) -> _RedisClaims:
        """Return a session for a thread. Raises `ConfigError` if the server may evict marks."""
        client = self._client
        if client is None:
            client = redis.Redis.from_url(self._need_url("client"), single_connection_client=True)
        session = _RedisClaims(client, self._prefix, is_own=self._client is None)
        try:
            _check_policy(client.config_get("maxmemory-policy"))
        except redis.ResponseError as error:
            _warn_unknown(error)
        except BaseException:
            session.close()
            raise
        return session

    async def async_claims(self) -> _AsyncRedisClaims:
        """Return a session for an event loop, as `claims`."""
        client = self._async_client
        if client is None:
            client = redis.asyncio.Redis.from_url(self._need_url("async_client"), single_connection_client=True)
            await client.initialize()
        session = _AsyncRedisClaims(client, self._prefix, is_own=self._async_client is None)
        try:
            _check_policy(await client.config_get("maxmemory-policy"))
        except redis.ResponseError as error:
            _warn_unknown(error)
        except BaseException:
            await session.close()
            raise
        return session

    def is_outage(self, error: BaseException) -> bool:
        """Return whether Redis raised the error: a record is never the cause."""
        # The statements are ours and fixed: whatever Redis refuses, the record is not the reason.
        return isinstance(error, redis.RedisError)

    def __repr__(self) -> str:
        return f"Redis({_shown(self._url) if self._url is not None else self._client or self._async_client!r})"

    def _need_url(self, other: str) -> str:
        if self._url is None:
            raise ConfigError(f"Redis: this handler needs a URL or {other}=")
        return self._url


def _shown(url: str) -> str:
    """Return the URL without passwords, which may be before the host or among the options."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _check_policy(found: Mapping[Any, Any]) -> None:
    policies = {value.decode() if isinstance(value, bytes) else str(value) for value in found.values()}
    for policy in policies:
        if policy not in _KEEPS_MARKS:
            raise ConfigError(
                f"Redis: found maxmemory-policy {policy!r}, which forgets marks when memory is full; wanted "
                f"{' or '.join(_KEEPS_MARKS)}"
            )


def _warn_unknown(error: Exception) -> None:
    log_event(
        "store_eviction_unknown",
        "warning",
        {"error": f"{type(error).__name__}: {error}", "hint": "maxmemory-policy must be noeviction or volatile-ttl"},
    )


class _Keys:
    def __init__(self, client: Any, prefix: str, *, is_own: bool) -> None:
        self._client = client
        self._prefix = prefix
        self._is_own = is_own
        self._claim = client.register_script(CLAIM)
        self._look = client.register_script(LOOK)
        self._renew = client.register_script(RENEW)
        self._finish = client.register_script(FINISH)
        self._release = client.register_script(RELEASE)

    def _keys(self, consumer: str, ids: Sequence[str]) -> list[str]:
        start = f"{self._prefix}{{{consumer}}}:"
        return [start + message_id for message_id in ids]


def _without(ids: Sequence[str], numbers: Sequence[int]) -> Sequence[str]:
    """Return the ids without those at these indexes, counted from 1."""
    if not numbers:
        return ids
    left_out = set(numbers)
    return [message_id for number, message_id in enumerate(ids, 1) if number not in left_out]


def _states(ids: Sequence[str], answers: Sequence[int]) -> Mapping[str, int | None]:
    found = zip(ids, answers, strict=True)
    return {message_id: None if state == -1 else state for message_id, state in found if state != -2}


class _RedisClaims(_Keys):
    def claim(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> Collection[str]:
        return _without(ids, self._claim(self._keys(consumer, ids), [owner, lease_ms]))

    def look(self, consumer: str, ids: Sequence[str]) -> Mapping[str, int | None]:
        return _states(ids, self._look(self._keys(consumer, ids)))

    def renew(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> int:
        return int(self._renew(self._keys(consumer, ids), [owner, lease_ms]))

    def finish(self, consumer: str, ids: Sequence[str], *, window_ms: int) -> None:
        self._finish(self._keys(consumer, ids), [window_ms])

    def release(self, consumer: str, ids: Sequence[str], *, owner: str) -> None:
        self._release(self._keys(consumer, ids), [owner])

    def clean(self, consumer: str, *, window_ms: int) -> int:
        """Do nothing: keys expire in Redis."""
        return 0

    def close(self) -> None:
        if self._is_own:
            self._client.close()


class _AsyncRedisClaims(_Keys):
    async def claim(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> Collection[str]:
        return _without(ids, await self._claim(self._keys(consumer, ids), [owner, lease_ms]))

    async def look(self, consumer: str, ids: Sequence[str]) -> Mapping[str, int | None]:
        return _states(ids, await self._look(self._keys(consumer, ids)))

    async def renew(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> int:
        return int(await self._renew(self._keys(consumer, ids), [owner, lease_ms]))

    async def finish(self, consumer: str, ids: Sequence[str], *, window_ms: int) -> None:
        await self._finish(self._keys(consumer, ids), [window_ms])

    async def release(self, consumer: str, ids: Sequence[str], *, owner: str) -> None:
        await self._release(self._keys(consumer, ids), [owner])

    async def clean(self, consumer: str, *, window_ms: int) -> int:
        """Do nothing: keys expire in Redis."""
        return 0

    async def close(self) -> None:
        if self._is_own:
            await self._client.aclose()
