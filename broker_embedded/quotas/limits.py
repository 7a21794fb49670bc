"""Which limit holds for a client: of all quotas that concern it, the most specific one.

    user and client id         then  user and any other client id    then  user
    any other user, client id  then  any other user and client id    then  any other user
    client id                  then  any other client id

All clients of a user share a user's quota, all users share a client id's quota, and a quota of both is shared by none.
"Any other" gives each its own. A client without a client id has none of the quotas of client ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from broker_embedded.metadata.records import QuotaEntity
from broker_embedded.quotas.names import CLIENT_ID, IP, USER

Meter = tuple[str | None, str | None]
"""The scope of a measurement: user and client id, None where it does not matter."""

ClientQuotas = Mapping[QuotaEntity, Mapping[str, float]]


class QuotaLimits:
    """The limits of one kind: by entity."""

    def __init__(self, quotas: ClientQuotas, key: str) -> None:
        self._by_entity = {entity: values[key] for entity, values in quotas.items() if key in values}

    def __bool__(self) -> bool:
        return bool(self._by_entity)

    def of_client(self, user: str, client_id: str | None) -> tuple[float, Meter] | None:
        """Return the limit and its scope; None without a limit."""
        if self._by_entity:
            for entity, meter in _levels(user, client_id or None):
                limit = self._by_entity.get(entity)
                if limit is not None:
                    return limit, meter
        return None

    def of_address(self, address: str) -> float | None:
        for name in (address, None):
            limit = self._by_entity.get(((IP, name),))
            if limit is not None:
                return limit
        return None


def _levels(user: str, client_id: str | None) -> Iterator[tuple[QuotaEntity, Meter]]:
    """Yield the entities that may concern a client, the most specific first."""
    for name in (user, None):
        if client_id is not None:
            yield ((CLIENT_ID, client_id), (USER, name)), (user, client_id)
            yield ((CLIENT_ID, None), (USER, name)), (user, client_id)
        yield ((USER, name),), (user, None)
    if client_id is not None:
        yield ((CLIENT_ID, client_id),), (None, client_id)
        yield ((CLIENT_ID, None),), (None, client_id)
