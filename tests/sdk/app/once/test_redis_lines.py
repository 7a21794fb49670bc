"""Claims and marks in Redis as plain commands: what is sent, what an answer means, and when scripts are asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.stores import redis_lines
from ottla.testing.databases import RedisServer
from ottla.testing.stores import check_claim_store

IDS = ["a", "ä ♥", "b" * 200, "", "c\r\n+OK"]
CLAIMED = b"+OK\r\n" + b"+QUEUED\r\n" * 3 + b"*3\r\n"


def test_commands_are_those_that_the_client_would_send() -> None:
    packer = pytest.importorskip("redis").Connection()
    start = "ottla:inbox:{g/ä}:"
    claims = redis_lines.claims(start, IDS, owner="me|1", lease_ms=60_000)
    marks = redis_lines.marks(start, IDS, done="done", window_ms=86_400_000)
    sets = [("SET", start + name, "me|1", "NX", "PX", 60_000) for name in IDS]
    assert claims.packed == b"".join(packer.pack_commands([("MULTI",), *sets, ("EXEC",)]))
    assert marks.packed == b"".join(
        packer.pack_commands([("PSETEX", start + name, 86_400_000, "done") for name in IDS])
    )


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (CLAIMED + b"+OK\r\n+OK\r\n+OK\r\n", []),
        (CLAIMED + b"+OK\r\n$-1\r\n+OK\r\n", [1]),
        (CLAIMED + b"_\r\n+OK\r\n_\r\n", [0, 2]),
        (CLAIMED + b"$-1\r\n$-1\r\n$-1\r\n", [0, 1, 2]),
    ],
)
def test_an_answer_tells_which_keys_were_there(answer: bytes, found: list[int]) -> None:
    lines = redis_lines.claims("x:", ["a", "b", "c"], owner="me", lease_ms=1)
    for size in range(len(answer)):
        assert not lines.is_whole(answer[:size]), f"the first {size} bytes"
    assert lines.is_whole(answer)
    assert list(lines.found(answer) or ()) == found
    assert lines.found(answer) is not None


@pytest.mark.parametrize(
    "answer",
    [
        b"-NOAUTH Authentication required.\r\n",
        b"-NOPERM this user has no permissions to run the 'multi' command\r\n",
        b"+OK\r\n+QUEUED\r\n-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        b"+OK\r\n" + b"+QUEUED\r\n" * 3 + b"-EXECABORT Transaction discarded because of previous errors.\r\n",
        CLAIMED + b"+OK\r\n-WRONGTYPE\r\n",
        b">3\r\n$10\r\ninvalidate\r\n",
        CLAIMED + b">2\r\n",
        b"+OK\r\n" * 8,
        CLAIMED + b":1\r\n+OK\r\n+OK\r\n",
        CLAIMED + b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
        CLAIMED + b"$-1\r\n+OK\r\n+OK\r\n+",
    ],
)
def test_another_answer_is_not_waited_for_and_means_nothing(answer: bytes) -> None:
    lines = redis_lines.claims("x:", ["a", "b", "c"], owner="me", lease_ms=1)
    assert lines.is_whole(answer)
    assert lines.found(answer) is None


def test_marks_are_all_well_or_nothing_is_known() -> None:
    lines = redis_lines.marks("x:", ["a", "b"], done="done", window_ms=1)
    assert not lines.is_whole(b"+OK\r\n+OK\r")
    assert lines.found(b"+OK\r\n+OK\r\n") == ()
    assert lines.is_whole(b"+OK\r\n-OOM\r\n")
    assert lines.found(b"+OK\r\n-OOM\r\n") is None


# A real server


@pytest.fixture
def admin(redis: RedisServer) -> Iterator[Any]:
    import redis as driver

    client = driver.Redis.from_url(redis.url, decode_responses=True)
    yield client
    client.close()


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols_of_a_server_are_read(redis: RedisServer, protocol: int) -> None:
    from ottla.stores import Redis

    check_claim_store(Redis(f"{redis.url}?protocol={protocol}"))


def test_a_client_of_yours_is_asked_by_scripts(redis: RedisServer) -> None:
    import redis as driver

    from ottla.stores import Redis

    calls: list[str] = []

    class Yours(driver.Redis):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            calls.append(args[0])
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    client = Yours.from_url(redis.url, decode_responses=True)
    session = Redis(client=client).claims()
    assert set(session.claim("yours", ["a", "b"], owner="one", lease_ms=60_000)) == {"a", "b"}
    session.finish("yours", ["a"], window_ms=60_000)
    assert session.look("yours", ["a"]) == {"a": None}
    assert {"CONFIG GET", "EVALSHA"} <= set(calls) <= {"CONFIG GET", "EVALSHA", "SCRIPT LOAD"}
    session.close()
    assert client.ping(), "it is not ours to close"
    client.close()


@pytest.fixture(params=[False, True], ids=["threads", "asyncio"])
def on_loop(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


class Session:
    """A session for threads, or one for event loops that is called as one for threads."""

    def __init__(self, on_loop: bool, url: str) -> None:
        from ottla.stores import Redis

        self._loop = asyncio.new_event_loop() if on_loop else None
        store = Redis(url)
        self.is_outage = store.is_outage
        self._inner: Any = store.claims() if self._loop is None else self._loop.run_until_complete(store.async_claims())

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            answer = getattr(self._inner, name)(*args, **options)
            return answer if self._loop is None else self._loop.run_until_complete(answer)

        return call

    def end(self) -> None:
        self.close()
        if self._loop is not None:
            self._loop.close()


def test_a_connection_that_was_lost_is_made_again(redis: RedisServer, admin: Any, on_loop: bool) -> None:
    session = Session(on_loop, redis.url)
    for round_ in range(3):
        ids = [f"{round_}-{number}" for number in range(10)]
        admin.client_kill_filter(_type="normal", skipme=True)
        assert list(session.claim(f"lost-{on_loop}", ids, owner="one", lease_ms=60_000)) == ids
        admin.client_kill_filter(_type="normal", skipme=True)
        session.finish(f"lost-{on_loop}", ids, window_ms=60_000)
        assert session.look(f"lost-{on_loop}", ids) == dict.fromkeys(ids)
    session.end()


def test_claims_whose_answer_was_lost_are_ours(
    redis: RedisServer, on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.stores import redis as store

    answer, async_answer = store._answer, store._async_answer

    def loses(connection: Any, lines: Any) -> bytes:
        answer(connection, lines)
        raise ConnectionResetError

    async def loses_async(connection: Any, lines: Any) -> bytes:
        await async_answer(connection, lines)
        raise ConnectionResetError

    session = Session(on_loop, redis.url)
    session.claim(f"answer-{on_loop}", ["b"], owner="two", lease_ms=60_000)
    monkeypatch.setattr(store, "_answer", loses)
    monkeypatch.setattr(store, "_async_answer", loses_async)
    assert list(session.claim(f"answer-{on_loop}", ["a", "b", "c"], owner="one", lease_ms=60_000)) == ["a", "c"]
    session.finish(f"answer-{on_loop}", ["a"], window_ms=60_000)
    assert session.look(f"answer-{on_loop}", ["a"]) == {"a": None}
    session.end()


def test_a_client_that_keeps_its_socket_elsewhere_is_asked_by_scripts(
    redis: RedisServer, on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.stores import redis as store

    tries: list[Any] = []

    def moved(connection: Any, lines: Any) -> bytes:
        tries.append(lines)
        raise AttributeError("_sock")

    async def moved_async(connection: Any, lines: Any) -> bytes:
        return moved(connection, lines)

    monkeypatch.setattr(store, "_answer", moved)
    monkeypatch.setattr(store, "_async_answer", moved_async)
    session = Session(on_loop, redis.url)
    assert list(session.claim(f"moved-{on_loop}", ["a"], owner="one", lease_ms=60_000)) == ["a"]
    session.finish(f"moved-{on_loop}", ["a"], window_ms=60_000)
    assert session.look(f"moved-{on_loop}", ["a"]) == {"a": None}
    assert len(tries) == 1
    session.end()


def test_a_server_that_refuses_is_asked_by_scripts_from_then_on(redis: RedisServer, admin: Any, on_loop: bool) -> None:
    admin.acl_setuser(
        "narrow", enabled=True, passwords=["+word"], keys=["*"], categories=["+@all"], commands=["-multi", "-psetex"]
    )
    session = Session(on_loop, redis.url.replace("unix://", "unix://narrow:word@"))
    consumer = f"narrow-{on_loop}"
    assert list(session.claim(consumer, ["a"], owner="one", lease_ms=60_000)) == ["a"]
    before = admin.info("stats")["total_connections_received"]
    assert list(session.claim(consumer, ["a", "b"], owner="two", lease_ms=60_000)) == ["b"]
    session.finish(consumer, ["a", "b"], window_ms=60_000)
    assert session.look(consumer, ["a", "b"]) == {"a": None, "b": None}
    assert admin.info("stats")["total_connections_received"] == before, "it is not tried again for each run"
    session.end()


def test_a_full_server_is_an_outage_and_nothing_is_claimed(redis: RedisServer, admin: Any, on_loop: bool) -> None:
    session = Session(on_loop, redis.url)
    admin.config_set("maxmemory", 1)
    try:
        with pytest.raises(Exception, match="maxmemory") as refused:
            session.claim(f"full-{on_loop}", ["a", "b"], owner="one", lease_ms=60_000)
        assert session.is_outage(refused.value)
        with pytest.raises(Exception, match="maxmemory"):
            session.finish(f"full-{on_loop}", ["a"], window_ms=60_000)
    finally:
        admin.config_set("maxmemory", 0)
    assert session.look(f"full-{on_loop}", ["a", "b"]) == {}
    session.end()


def test_of_two_runs_with_the_same_messages_one_has_them_all(redis: RedisServer) -> None:
    from ottla.stores import Redis

    ids = [str(number) for number in range(100)]
    lines = redis_lines.claims("ottla:inbox:{both}:", ids, owner="slow", lease_ms=60_000)
    half = len(lines.packed) // 2
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(redis.url.removeprefix("unix://"))
        slow.sendall(lines.packed[:half])
        session = Redis(redis.url).claims()
        assert list(session.claim("both", ids, owner="fast", lease_ms=60_000)) == ids
        slow.sendall(lines.packed[half:])
        answer = b""
        while not lines.is_whole(answer):
            answer += slow.recv(65_536)
        session.close()
    assert lines.found(answer) == list(range(100))
