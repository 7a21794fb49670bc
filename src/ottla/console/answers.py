"""Responses computed from the cluster: fresh if that is quick, otherwise the last one with its age, so that a page
never waits for a slow cluster. A slow computation continues in the background, and the next request gets its result.
Thread-safe."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

from ottla.errors import OttlaError
from ottla.raising import again

PATIENCE_S: Final = 0.12
"""How long a page waits for a new answer when there is an old one."""
_MOST_KEPT: Final = 32

Answer = dict[str, Any]


@dataclass(slots=True)
class _CachedAnswer:
    """The last answer to a question, and the thread that fetches a newer one."""

    answer: Answer | None = None
    at_ms: int = 0
    problem: OttlaError | None = None
    """Why the last attempt failed."""
    asking: threading.Event | None = None
    """Set when the attempt in progress has ended."""
    mistake: BaseException | None = None


class Answers:
    """`of(question, ask)`: what `ask` returns, with `asked`: its age, and why no newer one could be had."""

    def __init__(self, now_ms: Callable[[], int], *, patience_s: float = PATIENCE_S) -> None:
        self._now_ms, self._patience_s = now_ms, patience_s
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _CachedAnswer] = OrderedDict()

    def of(self, question: Hashable, ask: Callable[[], Answer]) -> Answer:
        """Return the answer to a question, fresh or kept. Raises what `ask` raises if none is kept."""
        with self._lock:
            kept = self._kept.setdefault(question, _CachedAnswer())
            self._kept.move_to_end(question)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
            ended = kept.asking
            if ended is None:
                ended = kept.asking = threading.Event()
                threading.Thread(
                    target=self._ask, args=(kept, ended, ask), name="ottla-console-asking", daemon=True
                ).start()
            waits = kept.answer is None
        ended.wait(None if waits else self._patience_s)
        with self._lock:
            if kept.mistake is not None:
                raise again(kept.mistake)
            if kept.answer is None:
                assert kept.problem is not None
                raise again(kept.problem)
            age_ms = max(0, self._now_ms() - kept.at_ms)
            problem = None if kept.problem is None else str(kept.problem)
            return {**kept.answer, "asked": {"age_ms": age_ms, "problem": problem}}

    def forget(self, question: Hashable) -> None:
        """Invalidate the cached answer: the next request waits for a new one."""
        with self._lock:
            self._kept.pop(question, None)

    def _ask(self, kept: _CachedAnswer, ended: threading.Event, ask: Callable[[], Answer]) -> None:
        answer: Answer | None = None
        problem: OttlaError | None = None
        mistake: BaseException | None = None
        try:
            answer = ask()
        except OttlaError as error:
            problem = error
        except BaseException as error:
            mistake = error
        with self._lock:
            if answer is not None:
                kept.answer, kept.at_ms = answer, self._now_ms()
            kept.problem, kept.mistake, kept.asking = problem, mistake, None
        ended.set()
