"""Records as columns: what the consumer's core needs of them without an object per record.

A shell that fetches columns hands `Rows` to the session where the others hand over lists. Everything that counts
(offsets, turns, commits) is asked of the columns; a `Record` is made only of a row that somebody looks at: one that
failed, and goes to the dead letter topic.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

from ottla.records import Record

R = TypeVar("R", bound="Rows")


class _RowsMeta(ABCMeta):
    """Only subclasses count as `Rows`, and nothing is registered: to ask takes a tenth of what abstract classes take,
    and is asked of each record that comes alone."""

    __instancecheck__ = type.__instancecheck__


class Rows(Sequence[Record[Any]], metaclass=_RowsMeta):
    """Rows of one partition. Indexing makes a record; `rows[a:b]` and `joined` copy nothing."""

    @property
    @abstractmethod
    def offsets(self) -> Sequence[int]:
        """Their offsets."""

    @abstractmethod
    def joined(self: R, others: Sequence[R]) -> R:
        """These rows, and the others behind them."""

    @abstractmethod
    def from_offset(self: R, offset: int) -> R:
        """Those at this offset and behind it."""
