"""A consumer's group metadata as librdkafka's bytes, for `send_offsets_to_transaction`."""

from __future__ import annotations

from typing import Final

_MAGIC: Final = b"CGMDv2:"


def generation_of(metadata: bytes) -> int:
    """Return the generation (KIP-848: the member epoch) that it names; -1 when the consumer is no member at the moment.

    A coordinator takes the offsets of nobody's generation unchecked. Of a layout that is not known the generation is
    taken to be there: the coordinator checks it in any case.
    """
    if not metadata.startswith(_MAGIC) or len(metadata) < len(_MAGIC) + 4:
        return 0
    return int.from_bytes(metadata[len(_MAGIC) : len(_MAGIC) + 4], "little", signed=True)
