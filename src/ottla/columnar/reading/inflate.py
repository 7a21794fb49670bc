"""From the batches of a fetch to their plain bytes: where they lie if nothing is compressed, else a group at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ottla.columnar.arrays.varints import Bytes8
from ottla.wire_client.decode_limits import DecodeLimits
from ottla.wire_client.errors import CorruptBatch, DecodeLimitExceeded
from ottla.wire_client.fetching.fetched_batches import FetchedBatches
from ottla_wire.protocol import ProtocolError
from ottla_wire.records import BATCH_OVERHEAD, CompressionType, InflatesTooFar, decompress


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Batches whose records lie in one buffer, in order: batch i in `buffer[spans[i][0]:spans[i][1]]`."""

    buffer: Bytes8
    spans: list[tuple[int, int]]
    batches: FetchedBatches


def plain_groups(batches: FetchedBatches, limits: DecodeLimits) -> Iterator[Group]:
    """Yield all batches in order, in groups that inflate to at most `limits.inflated_bytes`, or are one batch.

    A batch is inflated when its group is asked for. What comes before a batch that is refused is given first. Raises
    `CorruptBatch`, or `DecodeLimitExceeded` for a batch that inflates to more than `limits.batch_bytes`.
    """
    in_place = _in_place(batches)
    if in_place is not None:
        yield in_place
        return
    payloads: list[bytes | memoryview] = []
    spans: list[tuple[int, int]] = []
    first = 0
    size = 0
    for number in range(len(batches)):
        try:
            plain = _plain(batches, number, limits)
        except (CorruptBatch, DecodeLimitExceeded):
            if payloads:
                yield Group(buffer=_joined(payloads), spans=spans, batches=batches.part(first, number))
            raise
        if payloads and size + len(plain) > limits.inflated_bytes:
            group = Group(buffer=_joined(payloads), spans=spans, batches=batches.part(first, number))
            payloads, spans, first, size = [], [], number, 0  # before it is taken: pieces and whole are not kept both
            yield group
            del group
        payloads.append(plain)
        spans.append((size, size + len(plain)))
        size += len(plain)
    if payloads:
        group = Group(buffer=_joined(payloads), spans=spans, batches=batches.part(first, len(batches)))
        del payloads, plain
        yield group


def _in_place(batches: FetchedBatches) -> Group | None:
    """Return the batches where they are, if none is compressed and their segments are slices of one response, in
    order."""
    if not len(batches):
        return None
    frame = batches.segments[0].data.obj
    if any(header.compression != CompressionType.NONE for header in batches.headers):
        return None
    if any(segment.data.obj is not frame for segment in batches.segments):
        return None
    buffer = np.frombuffer(memoryview(frame), dtype=np.uint8)
    base = buffer.__array_interface__["data"][0]
    origins = {id(segment): _address(segment.data) - base for segment in batches.segments}
    spans: list[tuple[int, int]] = []
    for header, segment, position in zip(batches.headers, batches.segments, batches.positions, strict=True):
        start = origins[id(segment)] + position
        spans.append((start + BATCH_OVERHEAD, start + header.size_in_bytes))
    if any(one[1] > two[0] for one, two in pairwise(spans)):
        return None  # segments out of order: joining them puts them in order
    return Group(buffer=buffer, spans=spans, batches=batches)


def _plain(batches: FetchedBatches, number: int, limits: DecodeLimits) -> bytes | memoryview:
    header, position = batches.headers[number], batches.positions[number]
    payload = batches.segments[number].data[position + BATCH_OVERHEAD : position + header.size_in_bytes]
    if header.compression == CompressionType.NONE:
        return payload
    try:
        return decompress(header.compression, payload, limits.batch_bytes)
    except InflatesTooFar:
        codec = CompressionType(header.compression).label
        raise DecodeLimitExceeded(
            f"{batches.place(number)}: its {len(payload):,} bytes of {codec} inflate to more than"
            f" {limits.batch_bytes:,} bytes, set by decode.batch.max.bytes; the next batch begins at offset"
            f" {header.next_offset}"
        ) from None
    except ProtocolError as error:
        raise CorruptBatch(f"{batches.place(number)}: {error}") from error


def _joined(payloads: list[bytes | memoryview]) -> Bytes8:
    return np.frombuffer(payloads[0] if len(payloads) == 1 else b"".join(payloads), dtype=np.uint8)


def _address(data: memoryview) -> int:
    address: int = np.frombuffer(data, dtype=np.uint8).__array_interface__["data"][0]
    return address
