"""Type variables with a default (PEP 696).

`typing.TypeVar` takes defaults from Python 3.13 on. Type checkers know them in all versions, through
`typing_extensions`, which need not be installed for that. The defaults therefore stand where only type checkers look.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""Bytes that are sent without a serde."""

Builtin = typing.TypeVar("Builtin", bytes, str, int)
OtherBuiltin = typing.TypeVar("OtherBuiltin", bytes, str, int)
"""A builtin class that stands for the serde of its values."""

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T_any = TypeVar("T_any", default=Any)
    V_co = TypeVar("V_co", covariant=True, default=bytes)
    V_contra = TypeVar("V_contra", contravariant=True, default=BytesLike)
    K_contra = TypeVar("K_contra", contravariant=True, default=BytesLike)
else:
    TypeVar = typing.TypeVar
    T_any = TypeVar("T_any")
    V_co = TypeVar("V_co", covariant=True)
    V_contra = TypeVar("V_contra", contravariant=True)
    K_contra = TypeVar("K_contra", contravariant=True)
