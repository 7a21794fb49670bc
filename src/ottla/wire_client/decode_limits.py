"""How much memory decoding may take, whatever a topic holds: a few kilobytes of a batch can inflate to gigabytes."""

from __future__ import annotations

from ottla.errors import ConfigError
from ottla_wire.compression_type import MAX_DECOMPRESSED_BYTES
from ottla_wire.facts import fact

LARGEST_BATCH_BYTES = 1 << 30
"""Arrow's binary columns count bytes with 32 bits."""


@fact
class DecodeLimits:
    """What a record batch may hold, and how much is inflated at a time.

    `batch_bytes` (`decode.batch.max.bytes`) and `record_headers` (`decode.record.max.headers`) refuse: what is beyond
    them raises `DecodeLimitExceeded`. `inflated_bytes` (`decode.max.bytes`) refuses nothing: so many bytes of all
    batches of a fetch are inflated at once (or one batch, if that is larger), and the rest when those were taken.
    """

    batch_bytes: int = MAX_DECOMPRESSED_BYTES
    inflated_bytes: int = 64 * 1024 * 1024
    record_headers: int = 1_000_000

    def __post_init__(self) -> None:
        if not 1 <= self.batch_bytes <= LARGEST_BATCH_BYTES:
            raise ConfigError(
                f"decode.batch.max.bytes: found {self.batch_bytes}, wanted 1 to {LARGEST_BATCH_BYTES} bytes"
            )
        if not 1 <= self.inflated_bytes <= LARGEST_BATCH_BYTES:
            raise ConfigError(f"decode.max.bytes: found {self.inflated_bytes}, wanted 1 to {LARGEST_BATCH_BYTES} bytes")
        if not 0 <= self.record_headers <= LARGEST_BATCH_BYTES // 2:
            raise ConfigError(
                f"decode.record.max.headers: found {self.record_headers}, wanted 0 to {LARGEST_BATCH_BYTES // 2}"
            )
