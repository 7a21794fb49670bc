"""Cuts a byte stream into frames, for tests that stand between a client and a broker."""

from __future__ import annotations

from ottla_wire.protocol.framing import SIZE_BYTES, frame_size
from ottla_wire.protocol.primitives import Buffer


class FrameReader:
    """Bytes in, frames out."""

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
