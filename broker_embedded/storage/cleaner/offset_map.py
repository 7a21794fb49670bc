"""Key -> offset of its last record, for the part of a log that is being cleaned. Bounded in entries."""

from __future__ import annotations

_LONG_KEY_BYTES = 32


class OffsetMap:
    """When it is full the rest of the dirty part waits for the next round."""

    __slots__ = ("_max_entries", "_offsets", "latest_offset")

    def __init__(self, *, max_entries: int = 1_000_000) -> None:
        if max_entries < 1:
            raise ValueError(f"max_entries must be at least 1, got {max_entries}")
        self._offsets: dict[bytes, int] = {}
        self._max_entries = max_entries
        self.latest_offset = -1
        """Everything up to here is in the map; a record beyond it is always retained."""

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Remember the last offset of a key. False if there is no room for another key."""
        short = _short(key)
        if short not in self._offsets and len(self._offsets) >= self._max_entries:
            return False
        self._offsets[short] = offset
        return True

    def get(self, key: bytes) -> int:
        """Return the last offset of a key, -1 if it is not in the map."""
        return self._offsets.get(_short(key), -1)


def _short(key: bytes) -> bytes:
    """Return a key, or the 128-bit digest of a long one (Kafka keeps digests of all). No digest equals a shorter
    key."""
    if len(key) <= _LONG_KEY_BYTES:
        return key
    import hashlib  # few logs have such keys; loading it takes a millisecond of a start

    return b"digest of a long key, longer than 32: " + hashlib.blake2b(key, digest_size=16).digest()
