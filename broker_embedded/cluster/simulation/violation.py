"""An invariant that did not hold."""

from __future__ import annotations


class InvariantViolated(Exception):
    """`invariant` is the rule in words, the message says where and how it was broken."""

    def __init__(self, invariant: str, message: str) -> None:
        self.invariant = invariant
        super().__init__(f"{invariant}: {message}")
