"""Which codecs record batches have, and how far one may inflate; `ottla_wire.records.compression` has the codecs."""

from __future__ import annotations

from enum import IntEnum

MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024


class CompressionType(IntEnum):
    """The number in a batch's attributes; `label` is the name in configs."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        return self.name.lower()
