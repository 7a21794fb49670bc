"""The response to one request, immediate or deferred.

A handler makes a `Reply`, hands it to the coordinator and returns what `server.handling.replies.response_of` makes of
it. What is answered at once costs no promise; what is held (a join, a commit that waits for replicas) calls back when
it is settled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Body = dict[str, Any]
A = TypeVar("A")


class Reply(Generic[A]):
    """Settled exactly once, with an answer that `convert` turns into the response body of the request's version."""

    __slots__ = ("_convert", "_listener", "body")

    def __init__(self, convert: Callable[[A], Body]) -> None:
        self._convert = convert
        self._listener: Callable[[Body], None] | None = None
        self.body: Body | None = None
        """None until settled."""

    def settle(self, answer: A) -> None:
        if self.body is not None:
            raise AssertionError("a request is answered once")
        self.body = self._convert(answer)
        if self._listener is not None:
            self._listener(self.body)

    def listen(self, listener: Callable[[Body], None]) -> None:
        """Call `listener` with the body when there is one."""
        if self.body is not None:
            listener(self.body)
        else:
            self._listener = listener
