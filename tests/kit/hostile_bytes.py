"""Mutated records, headers and values through the columnar decoders: a program, so that a crash of it is a result.

`run(inputs=..., seed=...)` starts it under the allocators that find memory that was written where nobody may: Python's
debug hooks, Arrow's debug pool (which aborts), and glibc's checks and fill bytes where glibc has them. It ends with the
number of inputs of each kind, how many were refused, and code 0, if no array broke its own rules
(`validate(full=True)`) and nothing but the two errors of the decoder was raised. What decodes is compared with the
decoder that makes an object per record, or with the serde.

    python tests/kit/hostile_bytes.py --inputs 1000000 --seed 1
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import os
import random
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from google.protobuf import struct_pb2

from ottla.columnar.reading.decode import scan
from ottla.columnar.values import json_columns
from ottla.columnar.values.avro import read_avro_columns
from ottla.columnar.values.avro_types import parse_avro
from ottla.columnar.values.decoding import ColumnDecoder, decoder_for
from ottla.records import Malformed
from ottla.serdes import Avro, Json, Protobuf, SerdeContext
from ottla.wire_client.decode_limits import DecodeLimits
from ottla.wire_client.errors import CorruptBatch, DecodeLimitExceeded
from ottla.wire_client.fetching.fetched_batches import Segment
from ottla.wire_client.fetching.record_chunks import shown_headers
from ottla_wire.protocol import ProtocolError
from ottla_wire.protocol.primitives import decode_varint
from ottla_wire.records import BATCH_OVERHEAD, CompressionType, RecordData, compress, crc32c, decode_batch, encode_batch
from ottla_wire.records.batch import CRC_COVERS_FROM, CRC_POSITION, parse_header

EDGES = [0, 1, -1, -2, 63, 64, 2**31 - 1, 2**31, -(2**31), 2**32, 2**62, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1]
LIMITS = DecodeLimits(batch_bytes=1 << 20, inflated_bytes=1 << 14, record_headers=200)
MALLOC_CHECKS = Path("/usr/lib/x86_64-linux-gnu/libc_malloc_debug.so.0")
ROWS = 64
"""So many values are decoded in one column; each counts as one input."""


class Colour(enum.Enum):
    RED = "RED"
    BLUE = "BLUE"


@dataclasses.dataclass
class Line:
    name: str
    count: int | None


@dataclasses.dataclass
class Flat:
    """What JSON is read in columns for."""

    id: int
    name: str | None
    price: float
    paid: bool
    note: str = ""
    count: int | None = None


@dataclasses.dataclass
class Order:
    id: int
    name: str | None
    price: float
    paid: bool
    raw: bytes
    colour: Colour
    lines: list[Line]
    grid: list[list[int]]
    tags: dict[str, int]
    first: Line | None


def run(*, inputs: int, seed: int, timeout_s: float) -> dict[str, dict[str, int]]:
    """Start the program under debug allocators; {kind: {inputs, refused}}. Raises AssertionError if it fails."""
    environment = os.environ | {
        "PYTHONMALLOC": "debug",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "ARROW_DEBUG_MEMORY_POOL": "abort",
        "MALLOC_PERTURB_": "165",
        "MALLOC_CHECK_": "3",
    }
    if MALLOC_CHECKS.exists():  # since glibc 2.34 the checks are in a library of their own
        environment["LD_PRELOAD"] = str(MALLOC_CHECKS)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", __file__, "--inputs", str(inputs), "--seed", str(seed)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, (
        f"seed {seed} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    found: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])
    return found


class Fuzz:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.inputs: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.columns = _decoders()
        self.node = parse_avro(Avro(Order).schema)

    def step(self) -> int:
        """One round of each kind; answers how many inputs that were."""
        before = self.inputs.total()
        for _ in range(ROWS):
            self.records()
        for kind, (decoder, serde, good) in self.columns.items():
            self.values(kind, decoder, serde, [self.mutated(self.random.choice(good)) for _ in range(ROWS)])
        return self.inputs.total() - before

    # Records and headers

    def records(self) -> None:
        batches = [self.batch() for _ in range(self.random.choice([1, 1, 1, 2]))]
        frame = memoryview(b"front" + b"".join(batches))
        segments, position = [], 5
        for number, data in enumerate(batches):
            view = frame[position : position + len(data)] if self.random.random() < 0.7 else memoryview(data)
            segments.append(Segment(topic="orders", partition=number, data=view, start=self.random.choice([0, 0, 2])))
            position += len(data)
        self.inputs["records"] += len(batches)
        try:
            found = list(scan(segments).batches(limits=LIMITS))
        except (CorruptBatch, DecodeLimitExceeded) as error:
            if "orders-" not in str(error):
                raise AssertionError("an error that does not say where") from error
            self.refused["records"] += len(batches)
            return
        for batch in found:
            batch.validate(full=True)
        rows = [row for batch in found for row in self.plain(batch)]
        expected = self.by_codec(segments)
        assert expected is None or rows == expected, (rows, expected)

    @staticmethod
    def plain(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
        for row in batch.select(["partition", "offset", "key", "value", "headers"]).to_pylist():
            headers = [(header["key"], header["value"]) for header in row["headers"]]
            yield row["partition"], row["offset"], row["key"], row["value"], headers

    @staticmethod
    def by_codec(segments: list[Segment]) -> list[tuple[object, ...]] | None:
        """What the codec that makes an object per record finds; None where it is stricter than a reader is."""
        rows: list[tuple[object, ...]] = []
        try:
            for segment in segments:
                header = parse_header(segment.data)
                shown = () if header.is_control else decode_batch(bytes(segment.data))
                if any(not header.base_offset <= r.offset <= header.last_offset for r in shown):
                    return None
                rows += [
                    (segment.partition, r.offset, r.key, r.value, shown_headers(r.headers))
                    for r in shown
                    if r.offset >= segment.start
                ]
        except (ProtocolError, UnicodeDecodeError, IndexError):
            return None
        return rows

    def batch(self) -> bytes:
        """A batch whose records were changed, and whose length and CRC are right again."""
        some = self.random
        count = some.choice([1, 1, 2, 5, 40])
        uniform = some.random() < 0.5
        size = some.randrange(20)
        records = []
        for offset in range(count):
            length = size if uniform else some.randrange(100)
            headers = [
                ("k" * some.randrange(4), some.choice([None, b"", bytes(some.randrange(9))]))
                for _ in range(some.choice([0, 0, 1, 3, 30]) if not uniform else 2)
            ]
            key = some.choice([None, b"", some.randbytes(3)])
            records.append(RecordData(offset, some.choice([0, 5, 2**45]), key, some.randbytes(length), headers))
        whole = encode_batch(records, timestamp_type=some.choice([0, 0, 1]))
        header, payload = bytearray(whole[:BATCH_OVERHEAD]), whole[BATCH_OVERHEAD:]
        if some.random() < 0.3:
            payload = self.mutated(payload)
        else:  # the records keep their borders, so that what is inside of them is reached
            bodies = _bodies(payload, count)
            for number in {some.randrange(count) for _ in range(some.choice([1, 1, 2]))}:
                bodies[number] = self.mutated(bodies[number])
            payload = b"".join(_varint(len(body)) + body for body in bodies)
        codec = CompressionType(some.choice([0, 0, 0, 1, 2, 3, 4]))
        if codec:
            payload = compress(codec, payload)
            if some.random() < 0.2:
                payload = self.mutated(payload)
        struct.pack_into(">h", header, 21, codec | (parse_header(whole).attributes & 8))
        if some.random() < 0.1:  # one of: attributes, last offset delta, timestamps, producer, count
            at, form = some.choice([(21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"), (43, ">q"), (57, ">i")])
            bits = 8 * struct.calcsize(form) - 1
            struct.pack_into(form, header, at, some.choice([e for e in EDGES if -(2**bits) <= e < 2**bits]))
        struct.pack_into(">i", header, 8, BATCH_OVERHEAD - 12 + len(payload))
        covered = bytes(header[CRC_COVERS_FROM:]) + bytes(payload)
        struct.pack_into(">I", header, CRC_POSITION, crc32c(covered))
        return bytes(header) + bytes(payload)

    # Values

    def values(self, kind: str, decoder: ColumnDecoder, serde: object, raw: list[bytes]) -> None:
        self.inputs[kind] += len(raw)
        column, errors = decoder.decode(pa.array([None, *raw], pa.binary()).slice(1), topic="orders")
        column.validate(full=True)
        errors.validate(full=True)
        assert len(column) == len(errors) == len(raw)
        is_bad = errors.is_valid().to_pylist()
        self.refused[kind] += sum(is_bad)
        by_row = serde.deserialize_many(raw, SerdeContext("orders"))  # type: ignore[attr-defined]
        for bad, one in zip(is_bad, by_row, strict=True):
            assert bad or not isinstance(one, Malformed), (kind, one)
        if kind == "avro":
            framed, _ = read_avro_columns(self.node, pa.array(raw, pa.binary()), skip=self.random.randrange(9))
            framed.validate(full=True)

    def mutated(self, data: bytes) -> bytes:
        """The data with one to three places changed: bits, lengths, pieces cut out, doubled or moved."""
        some = self.random
        changed = bytearray(data)
        for _ in range(some.choice([1, 1, 2, 3])):
            at = some.randrange(len(changed) + 1)
            way = some.randrange(7)
            if way == 0 and at < len(changed):
                changed[at] ^= 1 << some.randrange(8)
            elif way == 1 and at < len(changed):
                changed[at] = some.choice([0, 1, 2, 0x7F, 0x80, 0xFF, some.randrange(256)])
            elif way == 2:
                changed[at : at + 1] = _varint(some.choice(EDGES))
            elif way == 3:
                changed[at:at] = some.choice([_varint(some.choice(EDGES)), some.randbytes(3), b"\xff" * 10])
            elif way == 4:
                del changed[at : at + some.choice([1, 2, 9])]
            elif way == 5:
                changed[at:at] = changed[at : at + some.randrange(20)]
            else:
                del changed[at:]
        return bytes(changed)


def _bodies(payload: bytes, count: int) -> list[bytes]:
    """The records without their lengths."""
    found = []
    position = 0
    for _ in range(count):
        size, position = decode_varint(payload, position)
        found.append(payload[position : position + size])
        position += size
    return found


def _varint(number: int) -> bytes:
    """Zigzag, as records and Avro have it."""
    left = ((number << 1) ^ (number >> 63)) & 0xFFFFFFFFFFFFFFFF
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _decoders() -> dict[str, tuple[ColumnDecoder, object, list[bytes]]]:
    line = Line("bolt", 3)
    orders = [
        Order(1, None, 1.5, True, b"", Colour.RED, [], [], {}, None),
        Order(-(2**63), "ä" * 40, -0.0, False, b"\xff" * 9, Colour.BLUE, [line] * 3, [[1, 2], [], [3]], {"a": 1}, line),
        Order(2**63 - 1, "", 1e300, True, b"x", Colour.RED, [Line("", None)] * 20, [[5] * 20] * 5, {"": 2}, line),
    ]
    context = SerdeContext("orders")
    found: dict[str, tuple[ColumnDecoder, object, list[bytes]]] = {}
    for kind, serde in (("avro", Avro(Order)), ("json", Json(Order))):
        found[kind] = decoder_for(serde), serde, [serde.serialize(order, context) or b"" for order in orders]
    flat = Json(Flat)
    flats = [
        Flat(1, None, 1.5, True),
        Flat(-(2**63), "ä, {}: ", -1e-300, False, "x" * 90),
        Flat(10**17, "", 7.0, True, "", 5),
    ]
    found["flat json"] = decoder_for(flat), flat, [flat.serialize(value, context) or b"" for value in flats]
    message = struct_pb2.Struct()
    message.update({"id": 1, "lines": [{"name": "bolt"}, None, [True, "ä"]], "": {"a": {"b": 2.5}}})
    protobuf = Protobuf(struct_pb2.Struct)
    found["protobuf"] = decoder_for(protobuf), protobuf, [message.SerializeToString(), b""]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    json_columns.PAYS_FROM = 1  # type: ignore[misc]  # a column has few rows here
    fuzz = Fuzz(chosen.seed)
    began = time.monotonic()
    left = chosen.inputs
    while left > 0:
        left -= fuzz.step()
    print(f"{fuzz.inputs.total()} inputs in {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(json.dumps({kind: {"inputs": n, "refused": fuzz.refused[kind]} for kind, n in fuzz.inputs.items()}))


if __name__ == "__main__":
    main()
