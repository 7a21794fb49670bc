"""The walk of a failing record is the one that the page on the architecture states, in its order.

A module is in the walk if one of its functions calls, or is called by another, after the handler raised and on the way
to one of the steps below. Both shells are traced while they write a dead letter.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import ottla
from ottla import App, Dead, Producer
from tests.kit.apps_in_threads import serving

ROOT: Final = Path(ottla.__file__).parent
PAGE: Final = Path(__file__).parents[3] / "docs/explanation/architecture.md"

STEPS: Final = (
    "ExceptionTable.failure_of",
    "FailurePolicy.decide",
    "FailureWriter.write_dead_letter",
    "FormsToWrite.next",
    "Producer.send",
    "AsyncProducer.send",
    "FailureWriter.acknowledged",
)
LAST: Final = STEPS[-1]
LOOP_OF_THREADS: Final = "app/delivery/record_invoker.py"


class Walk:
    """Modules of the SDK in the order in which they are called, from `begin` until the failed write is settled."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.is_over = threading.Event()
        self._has_begun = False
        self._before: list[FrameType] = []

    def begin(self) -> None:
        """Begin, called by the handler: the frames above it have called it before it raised."""
        self._before = list(callers_of(sys._getframe()))
        self._has_begun = True

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        if not self._has_begun or event != "call" or frame.f_code.co_qualname not in STEPS or self.is_over.is_set():
            return
        stack = list(callers_of(frame))
        # Of the frames that were there when the handler raised, only the one that made the next call is in the walk.
        older = [index for index, each in enumerate(stack) if each in self._before]
        for caller in reversed(stack[: older[0] + 1] if older else stack):
            path = Path(caller.f_code.co_filename)
            if path.is_relative_to(ROOT) and (name := path.relative_to(ROOT).as_posix()) not in self.modules:
                self.modules.append(name)
        if frame.f_code.co_qualname == LAST:
            self.is_over.set()


def callers_of(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def stated() -> list[str]:
    """Return the modules of the walk on the page, without what it says of asyncio and of transactions."""
    walk = PAGE.read_text().split("**A record fails.**")[1].split("On asyncio")[0]
    found: list[str] = re.findall(r"`([a-z_/]+\.py)`", walk)
    assert f"{len(found)} modules" in walk
    return found


@pytest.fixture
def walk(kafka: Any, kafka_group: str, make_topic: Any, request: pytest.FixtureRequest) -> list[str]:
    topic, dead = make_topic("orders"), make_topic("dead")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, dead_letter_topic=dead)
    walk = Walk()

    def fail(value: bytes) -> None:
        walk.begin()
        raise ValueError(value)

    async def fail_on_loop(value: bytes) -> None:
        fail(value)

    is_async: bool = request.param
    app.handler(topic, on_error={ValueError: Dead("refused")})(fail_on_loop if is_async else fail)
    before = sys.getprofile(), threading.getprofile()
    threading.setprofile(walk.profile)
    try:
        with Producer(kafka.bootstrap_servers) as producer, serving(app, is_async=is_async):
            producer.send(topic, b"an order")
            producer.flush()
            assert walk.is_over.wait(30)
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])
    return walk.modules


@pytest.mark.parametrize("walk", [False], indirect=True)
def test_the_walk_in_threads_is_that_of_the_page(walk: list[str]) -> None:
    assert walk == stated()
    assert len(walk) <= 12


@pytest.mark.parametrize("walk", [True], indirect=True)
def test_the_walk_on_asyncio_has_the_same_modules_but_for_the_shell(walk: list[str]) -> None:
    of_both = [module for module in stated() if not module.startswith("sync/") and module != LOOP_OF_THREADS]
    of_asyncio = [
        "app/delivery/async_record_invoker.py",
        "aio/consume/workers.py",
        "aio/consume/dead_letters.py",
        "aio/produce/producer.py",
    ]
    assert sorted(walk) == sorted([*of_both, *of_asyncio])
    assert len(walk) <= 12
