"""The committed offsets of a shard: a function of the replayed records. Offsets committed in a transaction are pending
until its end marker; meanwhile a request for stable offsets is refused as UNSTABLE_OFFSET_COMMIT (KIP-447)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from .committed import OffsetAndMetadata, OffsetKey

Offsets = Mapping[OffsetKey, OffsetAndMetadata]
_NO_OFFSETS: Offsets = {}


class OffsetStore:
    """group -> (topic, partition) -> offset."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[OffsetKey, OffsetAndMetadata]] = {}
        self._pending: dict[int, dict[str, dict[OffsetKey, OffsetAndMetadata]]] = {}
        """producer id -> group -> offsets of its open transaction."""
        self._on_the_way: Counter[tuple[str, OffsetKey]] = Counter()
        """Parts of open transactions that are being written."""

    def put(self, group_id: str, key: OffsetKey, committed: OffsetAndMetadata) -> None:
        self._by_group.setdefault(group_id, {})[key] = committed

    def put_pending(self, producer_id: int, group_id: str, key: OffsetKey, committed: OffsetAndMetadata) -> None:
        self._pending.setdefault(producer_id, {}).setdefault(group_id, {})[key] = committed

    def announce(self, group_id: str, keys: Iterable[OffsetKey]) -> None:
        """Record that a transaction will commit these offsets. They are unstable until `arrived`."""
        self._on_the_way.update((group_id, key) for key in keys)

    def arrived(self, group_id: str, keys: Iterable[OffsetKey]) -> None:
        for key in keys:
            self._on_the_way[group_id, key] -= 1
        self._on_the_way = +self._on_the_way

    def remove(self, group_id: str, key: OffsetKey) -> None:
        """Forget an offset, also one that an open transaction would commit."""
        offsets = self._by_group.get(group_id)
        if offsets is not None:
            offsets.pop(key, None)
            if not offsets:
                del self._by_group[group_id]
        for groups in self._pending.values():
            groups.get(group_id, {}).pop(key, None)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply an end marker: the transaction's offsets become effective, or are dropped."""
        groups = self._pending.pop(producer_id, {})
        if not committed:
            return
        for group_id, offsets in groups.items():
            for key, offset in offsets.items():
                self.put(group_id, key, offset)

    def get(self, group_id: str, key: OffsetKey) -> OffsetAndMetadata | None:
        return self._by_group.get(group_id, _NO_OFFSETS).get(key)

    def of_group(self, group_id: str) -> Offsets:
        return self._by_group.get(group_id, _NO_OFFSETS)

    def group_ids(self) -> Iterable[str]:
        return tuple(self._by_group)

    def is_pending(self, group_id: str, key: OffsetKey) -> bool:
        """Return whether an open transaction is about to change this offset."""
        if (group_id, key) in self._on_the_way:
            return True
        return any(key in groups.get(group_id, _NO_OFFSETS) for groups in self._pending.values())

    def pending_keys(self, group_id: str) -> set[OffsetKey]:
        return set(self._pending_of(group_id))

    def has_pending(self, group_id: str) -> bool:
        return any(True for _ in self._pending_of(group_id))

    def _pending_of(self, group_id: str) -> Iterator[OffsetKey]:
        for groups in self._pending.values():
            yield from groups.get(group_id, _NO_OFFSETS)
        yield from (key for group, key in self._on_the_way if group == group_id)
