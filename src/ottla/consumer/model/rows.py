"""Records as columns: their interface for the consumer's core, without an object per record.

A shell that fetches columns passes `Rows` to the session where others pass lists. Offsets, turns and commits use the
columns. A `Record` is made only of a row that is needed as one, such as a failed row for the dead letter topic.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

from ottla.records import Record

R = TypeVar("R", bound="Rows")


class _RowsMeta(ABCMeta):
    """Makes `isinstance(x, Rows)` check for real subclasses only, which takes a tenth of the time of an abstract
    class's check. It is called for each record that is delivered alone."""

    __instancecheck__ = type.__instancecheck__


class Rows(Sequence[Record[Any]], metaclass=_RowsMeta):
    """Rows of one partition. Indexing makes a record; `rows[a:b]` and `joined` copy nothing."""

    @property
    @abstractmethod
    def offsets(self) -> Sequence[int]:
        """The offsets of the rows."""

    @abstractmethod
    def joined(self: R, others: Sequence[R]) -> R:
        """Return these rows with the others behind them."""

    @abstractmethod
    def from_offset(self: R, offset: int) -> R:
        """Return the rows from this offset on."""
