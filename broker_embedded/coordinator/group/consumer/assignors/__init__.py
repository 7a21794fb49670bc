"""Server-side assignors: pure functions from members and topics to a target assignment.

uniform   balanced, moves as little as possible; the default
range     the same partition numbers of all topics to the same member, so that they can be joined
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..assignment import Assignment
from .range import assign_range as assign_range
from .spec import GroupSpec as GroupSpec
from .spec import MemberSpec as MemberSpec
from .uniform import assign_uniform as assign_uniform

ASSIGNORS: Mapping[str, Callable[[GroupSpec], dict[str, Assignment]]] = MappingProxyType(
    {"uniform": assign_uniform, "range": assign_range}
)
