"""Which entities a DescribeClientQuotas request asks for (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.records import QuotaEntity
from broker_embedded.quotas.names import CLIENT_ID, IP, USER
from ottla_wire.protocol import ErrorCode


class MatchType(IntEnum):
    """How a component of the filter is compared."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


Component = tuple[str, int, str | None]
"""Kind of entity, match type, and the name for an exact match."""


class QuotaFilter:
    """Every component has to match; a strict filter matches no entity that has more kinds than that."""

    def __init__(self, components: Iterable[Component], *, is_strict: bool) -> None:
        """INVALID_REQUEST or UNSUPPORTED_VERSION for a filter that cannot be."""
        self._names: dict[str, str | None] = {}
        self._any: set[str] = set()
        self._is_strict = is_strict
        for kind, match_type, name in components:
            self._add(kind, match_type, name)
        kinds = self._any | self._names.keys()
        if IP in kinds and len(kinds) > 1:
            raise _invalid(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )

    def matches(self, entity: QuotaEntity) -> bool:
        if self._is_strict and len(entity) != len(self._names) + len(self._any):
            return False
        names = dict(entity)
        has_names = all(kind in names and names[kind] == name for kind, name in self._names.items())
        return has_names and all(kind in names for kind in self._any)

    def _add(self, kind: str, match_type: int, name: str | None) -> None:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in self._names or kind in self._any:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type not in set(MatchType):
            raise _invalid(f"Unknown match type {match_type}")
        if match_type == MatchType.EXACT and name is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match_type != MatchType.EXACT and name is not None:
            raise _invalid(
                f"Request specified MATCH_TYPE_{MatchType(match_type).name}, but also specified a match string."
            )
        if match_type == MatchType.SPECIFIED:
            self._any.add(kind)
        else:
            self._names[kind] = name


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)
