"""One client connection: bytes in, frames out to the dispatcher, replies back in the order of their requests.

Theory of operation. The transport writes into a buffer that we hand it. Frames arrive many at a time in a scratch
buffer that all connections of a loop share, because a read fills it and we empty it in one go; whole frames are copied
out, so nothing ever looks at the scratch later. The beginning of a frame whose rest is still to come gets a buffer of
its own exact size, allocated only after its length was checked, and the transport writes straight into it. So an
idle connection holds no buffer, and no buffer is reused while anything could still look at it.

The dispatcher answers with buffers (send now), a future of buffers (parked: an ack or a long poll), or None (the
request wants no reply). Replies leave strictly in request order: a finished reply waits behind unfinished ones.
Reading pauses while the peer leaves replies unread or has too many requests in flight.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Protocol, Union

from penstock.model.errors import ProtocolError
from penstock.server.limits import ConnectionLimits

Buffer = bytes | bytearray | memoryview
Reply = list[Buffer]
Answer = Union[Reply, "asyncio.Future[Reply]", None]

SCRATCH_BYTES = 256 * 1024
SLOWEST_BYTES_PER_MS = 64
_SIZE = Struct(">i")

logger = logging.getLogger("penstock.server")


class Session(Protocol):
    """What the dispatcher keeps about one connection (the peer's address, client software, principal)."""

    def answer(self, frame: bytearray) -> Answer:
        """Serve one request frame. A ProtocolError closes the connection."""

    def closed(self) -> None:
        """The connection is gone; parked work for it may be dropped."""


class Connection(asyncio.BufferedProtocol):
    """A framed, ordered, bounded conversation with one peer."""

    __slots__ = (
        "_closing",
        "_drained",
        "_frame",
        "_frame_filled",
        "_frame_started_at",
        "_limits",
        "_loop",
        "_on_closed",
        "_pending",
        "_reading",
        "_rest",
        "_scratch",
        "_session",
        "_transport",
        "_write_paused",
        "_write_paused_at",
        "last_active_at",
        "peer",
    )

    def __init__(
        self,
        session: Session,
        limits: ConnectionLimits,
        loop: asyncio.AbstractEventLoop,
        peer: tuple[str, int],
        scratch: bytearray,
        on_closed: Callable[[Connection], None],
    ) -> None:
        self.peer = peer
        self.last_active_at = loop.time()
        self._session = session
        self._limits = limits
        self._loop = loop
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._scratch = scratch
        # One to three bytes of a frame's length that came alone.
        self._rest = b""
        self._frame: bytearray | None = None
        self._frame_filled = 0
        self._frame_started_at: float | None = None
        self._pending: deque[Reply | asyncio.Future[Reply]] = deque()
        self._reading = True
        self._write_paused = False
        self._write_paused_at = 0.0
        self._closing = False
        self._drained: asyncio.Future[None] | None = None

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        self._transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes_max)  # type: ignore[union-attr]

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._transport = None
        self._frame = None
        for waiting in self._pending:
            if isinstance(waiting, asyncio.Future):
                waiting.cancel()
        self._pending.clear()
        self._session.closed()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._on_closed(self)

    def pause_writing(self) -> None:
        self._write_paused = True
        self._write_paused_at = self._loop.time()
        self._balance_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._balance_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_filled :]
        rest = self._rest
        if rest:
            self._scratch[: len(rest)] = rest
        return memoryview(self._scratch)[len(rest) :]

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_at = self._loop.time()
        try:
            if self._frame is not None:
                self._frame_filled += nbytes
                if self._frame_filled == len(self._frame):
                    frame, self._frame = self._frame, None
                    self._frame_started_at = None
                    self._serve(frame)
            else:
                self._split_scratch(len(self._rest) + nbytes)
        except ProtocolError as error:
            logger.warning("closing %s:%d: %s", *self.peer, error)
            self.abort()

    # Frames in.

    def _split_scratch(self, filled: int) -> None:
        """Serve every whole frame among the scratch's first `filled` bytes; keep the beginning of the next one."""
        scratch = self._scratch
        position = 0
        while filled - position >= 4:
            (size,) = _SIZE.unpack_from(scratch, position)
            if size <= 0 or size > self._limits.request_bytes_max:
                raise ProtocolError(
                    f"a request of {size} bytes was announced; between 1 and "
                    f"{self._limits.request_bytes_max} (socket.request.max.bytes) are accepted"
                )
            start = position + 4
            if filled - start < size:
                frame = bytearray(size)
                self._frame_filled = filled - start
                frame[: self._frame_filled] = memoryview(scratch)[start:filled]
                self._frame = frame
                position = filled
                break
            position = start + size
            self._serve(scratch[start:position])
            if self._closing:
                return
        self._rest = bytes(scratch[position:filled]) if position < filled else b""
        self._frame_started_at = self.last_active_at if self._rest or self._frame is not None else None

    def _serve(self, frame: bytearray) -> None:
        answer = self._session.answer(frame)
        if answer is None:
            return
        pending = self._pending
        if isinstance(answer, asyncio.Future):
            pending.append(answer)
            answer.add_done_callback(self._parked_done)
            if len(pending) >= self._limits.requests_in_flight_max:
                self._balance_reading()
        elif pending:
            pending.append(answer)
        elif self._transport is not None:
            self._transport.writelines(answer)

    # Replies out.

    def _parked_done(self, done: asyncio.Future[Reply]) -> None:
        if self._closing and self._transport is None:
            if not done.cancelled():
                done.exception()
            return
        pending = self._pending
        while pending:
            head = pending[0]
            if isinstance(head, asyncio.Future):
                if not head.done():
                    break
                if head.cancelled() or head.exception() is not None:
                    self._parked_failed(head)
                    return
                head = head.result()
            pending.popleft()
            if self._transport is not None and head:
                self._transport.writelines(head)
        if not self._reading:
            self._balance_reading()
        if not pending and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _parked_failed(self, failed: asyncio.Future[Reply]) -> None:
        if not failed.cancelled():
            logger.error("a request of %s:%d failed; closing it", *self.peer, exc_info=failed.exception())
        self.abort()

    def _balance_reading(self) -> None:
        """Read while the peer takes its replies and has room for more requests in flight."""
        if self._transport is None or self._closing:
            return
        wanted = not self._write_paused and len(self._pending) < self._limits.requests_in_flight_max
        if wanted and not self._reading:
            self._reading = True
            self._transport.resume_reading()
        elif not wanted and self._reading:
            self._reading = False
            self._transport.pause_reading()

    # The listener's side.

    def overdue(self, now: float) -> str | None:
        """Why this connection should be closed at loop time `now`, or None."""
        limits = self._limits
        if self._write_paused and (now - self._write_paused_at) * 1000 > limits.write_stall_ms_max:
            return "it took no reply bytes for penstock.write.stall.timeout.ms"
        if self._frame_started_at is not None and self._reading:
            # A large request gets the time that a slow but honest link needs for it.
            size = len(self._frame) if self._frame is not None else 0
            if (now - self._frame_started_at) * 1000 > limits.request_read_ms_max + size // SLOWEST_BYTES_PER_MS:
                return "its request did not arrive whole within penstock.request.read.timeout.ms"
        if not self._pending and (now - self.last_active_at) * 1000 > limits.idle_ms_max:
            return "it was idle for connections.max.idle.ms"
        return None

    def abort(self) -> None:
        """Close at once; unsent replies are dropped."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    async def drain_and_close(self) -> None:
        """Take no more requests, send the replies of those accepted, then close."""
        if self._transport is None:
            return
        if self._reading:
            self._reading = False
            self._transport.pause_reading()
        self._closing = True
        if self._pending:
            self._drained = self._loop.create_future()
            await self._drained
        if self._transport is not None:
            self._transport.close()
