"""Splits a stream of responses into frames: a size, followed by that many bytes.

Small frames arrive many at a time in a scratch buffer and are copied out of it. An incomplete frame gets a buffer of
its own, and the transport writes straight into that: a large response is not copied again. No buffer is reused while
anything could still refer to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct

from penstock.client.protocol import FRAME_BYTES_MAX, SIZE_REFUSED

SCRATCH_BYTES = 64 * 1024
# A larger frame's buffer starts with this size and grows with what arrives, whatever size was announced.
FRAME_BYTES_FIRST = 16 * 1024 * 1024
FRAME_GROWTH = 4

_SIZE = Struct(">i")


class FrameStream(asyncio.BufferedProtocol):
    """Calls `on_frame` with complete frames, and `on_end` once, with a reason, when the stream ends."""

    __slots__ = ("_filled", "_frame", "_on_end", "_on_frame", "_scratch", "_size", "_size_max", "_transport")

    def __init__(
        self, on_frame: Callable[[memoryview], None], on_end: Callable[[str], None], size_max: int = FRAME_BYTES_MAX
    ) -> None:
        self._size_max = size_max
        self._on_frame = on_frame
        self._on_end: Callable[[str], None] | None = on_end
        self._transport: asyncio.Transport | None = None
        self._scratch = bytearray(SCRATCH_BYTES)
        # The frame that is being received; without one, `_filled` counts bytes at the start of the scratch buffer.
        self._frame: bytearray | None = None
        self._filled = 0
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream is open."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream is over."""
        self.end(f"the connection broke: {exc}" if exc is not None else "it closed the connection")

    def write(self, buffers: list[bytes | bytearray | memoryview]) -> None:
        """Send; does nothing on a closed stream."""
        if self._transport is not None:
            self._transport.write(b"".join(buffers))

    def end(self, reason: str, *, flush: bool = False) -> None:
        """Close the stream; with `flush` after everything written has been sent."""
        transport, self._transport = self._transport, None
        on_end, self._on_end = self._on_end, None
        self._frame = None
        if transport is not None:
            if flush:
                transport.close()
            else:
                transport.abort()
        if on_end is not None:
            on_end(reason)

    def forget(self) -> None:
        """Do not call `on_end` when the stream ends."""
        self._on_end = None

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """The buffer that the transport writes to next."""
        return memoryview(self._scratch if self._frame is None else self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        self._filled += nbytes
        frame = self._frame
        if frame is None:
            self._split()
        elif self._filled == self._size:
            self._frame, self._filled = None, 0
            self._on_frame(memoryview(frame))
        elif self._filled == len(frame):
            self._frame = bytearray(min(self._size, len(frame) * FRAME_GROWTH))
            self._frame[: len(frame)] = frame

    def _split(self) -> None:
        """Pass on the complete frames in the scratch buffer, and make room for what follows them."""
        view, position = memoryview(self._scratch), 0
        while self._filled - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(view, position)
            if not 0 < size <= self._size_max:
                self.end(SIZE_REFUSED.format(size))
                return
            start = position + _SIZE.size
            if self._filled - start < size:
                self._begin_frame(view[start : self._filled], size)
                return
            position = start + size
            self._on_frame(memoryview(bytes(view[start:position])))
            if self._transport is None:
                return
        rest = bytes(view[position : self._filled])
        self._scratch[: len(rest)] = rest
        self._filled = len(rest)

    def _begin_frame(self, first: memoryview, size: int) -> None:
        self._frame = bytearray(min(size, max(FRAME_BYTES_FIRST, len(first))))
        self._frame[: len(first)] = first
        self._size, self._filled = size, len(first)
