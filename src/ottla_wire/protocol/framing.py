"""The size in front of a frame: four bytes, big-endian."""

from __future__ import annotations

from ottla_wire.protocol.exceptions import FrameTooLarge, ProtocolError
from ottla_wire.protocol.primitives import Buffer

SIZE_BYTES = 4


def frame_size(buffer: Buffer, position: int, max_frame_bytes: int) -> int | None:
    """Return the size that the frame at `position` announces, or None until its four bytes are there."""
    if len(buffer) - position < SIZE_BYTES:
        return None
    size = int.from_bytes(buffer[position : position + SIZE_BYTES], "big", signed=True)
    if size < 0:
        raise ProtocolError(f"a frame announces {size} bytes", message="frame", position=position)
    if size > max_frame_bytes:
        raise FrameTooLarge(
            f"a frame announces {size} bytes, at most {max_frame_bytes} are accepted",
            message="frame",
            position=position,
        )
    return size
