"""The parts of a commit's metadata that members write and `ottla groups lag` reads: it loads no consumer for them.

The finished offsets behind the magic are those of `ottla.consumer.commit.offset_metadata`.
"""

from __future__ import annotations

from typing import Final

MAGIC: Final = "ottla1:"
LIMITED: Final = ":limited"


def marked_limited(metadata: str) -> str:
    """Return the metadata of a handler whose `max_rate` holds back records."""
    return (metadata or MAGIC) + LIMITED


def is_marked_limited(metadata: str | None) -> bool:
    """Return whether the metadata says that records waited for `max_rate`."""
    # confluent-kafka commits a zero byte behind it.
    return metadata is not None and metadata.startswith(MAGIC) and metadata.rstrip("\0").endswith(LIMITED)
