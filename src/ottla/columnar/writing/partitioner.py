"""Which partition each row of a column goes to, as Kafka's Java client decides it.

Keys are hashed with murmur2, column-wise; rows without a key are spread in long runs, one partition after another,
because whole batches compress and travel better than single records (the idea of KIP-480's sticky partitioner).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ottla.columnar.arrays.binary import binary_parts
from ottla.columnar.arrays.varints import Ints

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)


def partitions_for_keys(keys: pa.Array | None, *, rows: int, partition_count: int, first: int = 0) -> NDArray[np.int32]:
    """Return one partition per row. `first` is where rows without a key begin; pass a different one for each writer."""
    if keys is None or keys.null_count == rows:
        return _spread(rows, partition_count, first)
    hashes = murmur2(keys)
    partitions = ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partition_count)).astype(np.int32)
    if keys.null_count:
        nulls = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
        partitions[nulls] = _spread(len(nulls), partition_count, first)
    return partitions


def murmur2(keys: pa.Array) -> NDArray[np.uint32]:
    """Return the murmur2 hash of each key with Kafka's seed; null rows have no meaningful hash."""
    offsets, data, _ = binary_parts(keys)
    starts = offsets[:-1]
    lengths = np.diff(offsets)
    hashes = _SEED ^ lengths.astype(np.uint32)
    rounds = int(lengths.max()) // 4 if len(lengths) else 0
    for number in range(rounds):
        has_word = lengths >= 4 * (number + 1)
        rows = slice(None) if has_word.all() else np.flatnonzero(has_word)
        at = starts[rows] + 4 * number
        k = _bytes(data, at) | _bytes(data, at + 1) << 8 | _bytes(data, at + 2) << 16 | _bytes(data, at + 3) << 24
        k *= _M
        k ^= k >> 24
        k *= _M
        hashes[rows] = hashes[rows] * _M ^ k
    left = lengths & 3
    for count in (3, 2, 1):
        rows = np.flatnonzero(left >= count)
        if len(rows):
            at = starts[rows] + (lengths[rows] - left[rows]) + (count - 1)
            hashes[rows] ^= _bytes(data, at) << (8 * (count - 1))
    rows = np.flatnonzero(left)
    hashes[rows] *= _M
    hashes ^= hashes >> 13
    hashes *= _M
    hashes ^= hashes >> 15
    return hashes


def _bytes(data: NDArray[np.uint8], at: Ints) -> NDArray[np.uint32]:
    return data[at].astype(np.uint32)


def _spread(rows: int, partition_count: int, first: int) -> NDArray[np.int32]:
    """Return even runs over all partitions, beginning with partition `first`."""
    runs = np.arange(rows, dtype=np.int64) * partition_count // max(rows, 1)
    return ((runs + first) % partition_count).astype(np.int32)
