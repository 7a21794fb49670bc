"""The loop on a virtual clock, alone: timers, I/O, threads."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from broker_embedded.cluster.time import VirtualClock, new_event_loop
from broker_embedded.cluster.time.real_timers import RealTimers
from broker_embedded.common.clock import ManualClock, client_timer

DEADLINE_S = 30


class LoopThread:
    """A loop in a thread, as the embedded cluster has it."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.loop = new_event_loop(clock)
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function on the loop and return what it returns."""
        answer: Future[Any] = Future()

        def run() -> None:
            try:
                answer.set_result(function(*args))
            except BaseException as error:
                answer.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return answer.result(DEADLINE_S)

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE_S)

    def close(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(DEADLINE_S)
            self.loop.close()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def running(clock: VirtualClock) -> Iterator[LoopThread]:
    thread = LoopThread(clock)
    yield thread
    thread.close()


def test_timers_run_at_their_own_moment_and_in_order(running: LoopThread, clock: VirtualClock):
    start_ms = clock.monotonic_ms()
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, clock.monotonic_ms() - start_ms))

    def again(left: int) -> None:
        note("every 300")
        if left:
            running.loop.call_later(0.3, again, left - 1)

    def start() -> None:
        running.loop.call_later(2, note, "late")
        running.loop.call_later(0.5, note, "early")
        running.loop.call_later(0.3, again, 2)

    running.call(start)
    clock.advance(1_000)
    assert seen == [("every 300", 300), ("early", 500), ("every 300", 600), ("every 300", 900)]
    clock.advance(1_000)
    assert seen[4:] == [("late", 2_000)]


def test_nothing_happens_while_time_stands_still(running: LoopThread, clock: VirtualClock):
    seen: list[str] = []
    running.call(lambda: running.loop.call_later(0.001, seen.append, "run"))
    before = clock.now_ms(), clock.monotonic_ms(), running.call(running.loop.time)
    real_waits: Future[None] = Future()
    running.call(lambda: client_timer(running.loop)(0.05, real_waits.set_result, None))
    real_waits.result(DEADLINE_S)  # real time has passed now
    assert seen == []
    assert before == (clock.now_ms(), clock.monotonic_ms(), running.call(running.loop.time))
    clock.advance(1)
    assert seen == ["run"]


def test_the_clock_and_the_loop_agree_when_a_timer_runs(running: LoopThread, clock: VirtualClock):
    """A deadline that is checked against the clock inside its own timer is never early by a rounding error."""
    early: list[int] = []

    def check(deadline_ms: int) -> None:
        if clock.monotonic_ms() < deadline_ms or running.loop.time() * 1000 < deadline_ms - 0.001:
            early.append(deadline_ms)

    def start() -> None:
        now_ms = clock.monotonic_ms()
        for delay_ms in range(1, 3_000, 7):
            running.loop.call_later(delay_ms / 1000, check, now_ms + delay_ms)

    for days in (0, 100, 3_000):
        clock.advance(days=days)
        running.call(start)
        clock.advance(seconds=3)
    assert early == []


def test_what_a_timer_starts_comes_to_rest_before_the_next_timer(running: LoopThread, clock: VirtualClock):
    """Between two timers a request travels over a socket and back."""
    order: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1):
            await asyncio.sleep(0)
            writer.write(data)
        writer.close()

    async def connect() -> tuple[asyncio.Server, asyncio.StreamReader, asyncio.StreamWriter]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        return server, reader, writer

    server, reader, writer = running.run(connect())

    async def ask(number: int) -> None:
        order.append(f"asked {number}")
        writer.write(b"x")
        await reader.readexactly(1)
        order.append(f"answered {number}")

    tasks: list[asyncio.Task[None]] = []

    def start() -> None:
        for number in range(50):
            running.loop.call_later(number / 1000, lambda n: tasks.append(running.loop.create_task(ask(n))), number)

    running.call(start)
    clock.advance(100)
    assert order == [f"{what} {number}" for number in range(50) for what in ("asked", "answered")]

    async def end() -> None:
        writer.close()
        await writer.wait_closed()
        server.close()

    running.run(end())


def test_a_wait_of_the_client_passes_in_real_time(running: LoopThread, clock: VirtualClock):
    rang: Future[int] = Future()
    before_ms = clock.monotonic_ms()
    running.call(lambda: client_timer(running.loop)(0.02, lambda: rang.set_result(clock.monotonic_ms())))
    assert rang.result(DEADLINE_S) == before_ms


def test_a_leap_lets_nobody_miss_the_heartbeats_of_the_others(running: LoopThread, clock: VirtualClock):
    """One beats every 100 ms, another gives up after 400 ms of silence; then a month passes."""
    gave_up: list[int] = []
    beats = 0
    silence: asyncio.TimerHandle | None = None

    def hear() -> None:
        nonlocal silence
        if silence is not None:
            silence.cancel()
        silence = running.loop.call_later(0.4, lambda: gave_up.append(clock.monotonic_ms()))

    def beat() -> None:
        nonlocal beats
        beats += 1
        hear()
        running.loop.call_later(0.1, beat)

    running.call(beat)
    clock.advance(days=30)
    assert gave_up == []
    assert beats >= 100, "the last ten seconds are walked"
    assert beats < 1_000, "the month is not"


def test_a_wait_for_an_answer_is_not_over_because_time_leapt(running: LoopThread, clock: VirtualClock):
    seen: list[str] = []

    class Asker:
        def expire(self) -> None:
            seen.append("no answer")

        expire.keeps_time_left = True  # type: ignore[attr-defined]

    running.call(lambda: running.loop.call_later(30, Asker().expire))
    clock.advance(days=1)
    assert seen == []
    clock.advance(seconds=30)
    assert seen == ["no answer"]


def test_time_passes_while_somebody_waits_for_the_cluster(running: LoopThread, clock: VirtualClock):
    rang: Future[None] = Future()
    running.call(lambda: running.loop.call_later(0.02, rang.set_result, None))
    with clock.passing():
        rang.result(DEADLINE_S)
        assert clock.speed == 0, "what it was given, and has again afterwards"
    assert clock.monotonic_ns() == clock.monotonic_ns()


def test_a_leap_runs_what_was_due_in_it_and_what_follows_from_that(running: LoopThread, clock: VirtualClock):
    seen: list[str] = []

    def check() -> None:
        seen.append("check")
        running.loop.call_later(60, seen.append, "delete a minute later")

    running.call(lambda: running.loop.call_later(300, check))
    running.call(lambda: running.loop.call_later(45, seen.append, "session"))
    clock.advance(days=1)
    assert sorted(seen) == ["check", "delete a minute later", "session"]


def test_a_scaled_clock_runs_by_itself():
    clock = VirtualClock(speed=1_000)
    thread = LoopThread(clock)
    try:
        rang: Future[int] = Future()
        before_ms = clock.monotonic_ms()
        thread.call(lambda: thread.loop.call_later(60, lambda: rang.set_result(clock.monotonic_ms())))
        assert rang.result(DEADLINE_S) >= before_ms + 60_000
        clock.freeze()
        assert clock.now_ms() == clock.now_ms()
        assert clock.speed == 0
    finally:
        thread.close()


def test_a_frozen_clock_that_is_set_running_wakes_its_loop(running: LoopThread, clock: VirtualClock):
    rang: Future[None] = Future()
    running.call(lambda: running.loop.call_later(3_600, rang.set_result, None))
    clock.run(speed=1_000_000)
    rang.result(DEADLINE_S)


def test_advance_without_a_loop_only_moves_the_time(clock: VirtualClock):
    before = clock.now_ms(), clock.monotonic_ms()
    clock.advance(days=1, hours=1, minutes=1, seconds=1, ms=1)
    moved = 90_061_001
    assert (clock.now_ms(), clock.monotonic_ms()) == (before[0] + moved, before[1] + moved)


def test_time_moves_forward_only(clock: VirtualClock):
    with pytest.raises(ValueError, match="forward only"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="wanted 0"):
        clock.run(speed=-1)


def test_the_loops_own_thread_is_told_not_to_wait_for_itself(running: LoopThread, clock: VirtualClock):
    with pytest.raises(RuntimeError, match="from another one"):
        running.call(clock.advance, 1)


def test_a_clock_belongs_to_one_running_cluster(running: LoopThread, clock: VirtualClock):
    with pytest.raises(RuntimeError, match="another VirtualClock"):
        new_event_loop(clock)
    running.close()
    new_event_loop(clock).close()


def test_threads_that_advance_at_once_add_up(running: LoopThread, clock: VirtualClock):
    before_ms = clock.monotonic_ms()
    threads = [threading.Thread(target=clock.advance, args=(1_000,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert clock.monotonic_ms() == before_ms + 8_000


def test_a_loop_that_is_closed_while_time_moves_says_so(running: LoopThread, clock: VirtualClock):
    failed: Future[BaseException] = Future()

    def forever() -> None:
        running.loop.call_soon(forever)  # never at rest: time cannot move

    def advance() -> None:
        try:
            clock.advance(1)
        except RuntimeError as error:
            failed.set_result(error)

    running.call(forever)
    threading.Thread(target=advance, daemon=True).start()
    running.call(int)
    running.close()
    assert "stopped" in str(failed.result(DEADLINE_S))


def test_any_other_clock_gets_the_ordinary_loop():
    loop = new_event_loop(ManualClock())
    assert type(loop) is asyncio.SelectorEventLoop
    assert client_timer(loop) == loop.call_later
    loop.close()


def test_cancelled_long_polls_do_not_pile_up():
    loop = new_event_loop(ManualClock())
    timers = RealTimers(seconds=lambda: 0.0, sweep_from=8)
    for _ in range(1_000):
        timers.call_later(loop, 1, print, (), None).cancel()
    assert len(timers) < 20
    kept = timers.call_later(loop, 0, print, (), None)
    assert timers.take_due() == [kept]
    assert timers.seconds_to_next() is None or timers.seconds_to_next() == 1
    loop.close()


def test_sockets_are_served_while_time_stands_still(running: LoopThread):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(4))
        await writer.drain()
        writer.close()

    server = running.run(asyncio.start_server(serve, "127.0.0.1", 0))
    with socket.create_connection(server.sockets[0].getsockname(), timeout=DEADLINE_S) as client:
        client.sendall(b"ping")
        assert client.recv(4) == b"ping"
    running.call(server.close)
