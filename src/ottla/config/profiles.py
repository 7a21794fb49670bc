"""Named sets of producer settings for two opposite needs. Anything else is raw settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ottla.config.defaults import Default, by_name

LOW_LATENCY = by_name(
    Default("linger.ms", 0, "a record leaves at once; records that arrive while one is on its way still share a batch"),
    Default("batch.size", 65_536, "small batches: a record never waits behind many others"),
    Default("compression.type", "none", "small batches hardly compress, and compression would add latency"),
    Default("retry.backoff.ms", 20, "after a leader moved, the new one is tried soon"),
)

HIGH_THROUGHPUT = by_name(
    Default("linger.ms", 50, "a twentieth of a second fills large batches even at moderate rates"),
    Default("batch.size", 524_288, "half of the smallest topic limit in common use: few requests, good compression"),
    Default("compression.type", "lz4", "a half to a third of the bytes for next to no processor time"),
    Default("buffer.memory", 268_435_456, "256 MiB rides out a leader election at a high rate without blocking"),
    Default("queue.buffering.max.messages", 2_000_000, "the record count must not be the limit before the bytes are"),
)

PROFILES: Mapping[str, Mapping[str, Default]] = MappingProxyType(
    {"low_latency": LOW_LATENCY, "high_throughput": HIGH_THROUGHPUT}
)
