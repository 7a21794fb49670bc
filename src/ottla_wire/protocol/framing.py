"""Cut a byte stream into frames: a 4-byte big-endian size, then that many bytes."""

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


class FrameReader:
    """Bytes in, frames out. A frame's memory is taken as its bytes arrive, never on the word of its size."""

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._pending = bytearray()

    @property
    def pending_bytes(self) -> int:
        return len(self._pending)

    def feed(self, data: Buffer) -> list[bytes]:
        """Return the frames, without their sizes, that `data` completes."""
        pending = self._pending
        pending += data
        frames: list[bytes] = []
        position = 0
        try:
            while (size := frame_size(pending, position, self.max_frame_bytes)) is not None:
                end = position + SIZE_BYTES + size
                if end > len(pending):
                    break
                frames.append(bytes(memoryview(pending)[position + SIZE_BYTES : end]))
                position = end
        finally:
            del pending[:position]
        return frames
