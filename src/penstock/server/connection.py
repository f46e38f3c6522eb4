"""One client connection: bytes in, frames to the dispatcher, replies back in the order of their requests.

Theory of operation. The transport writes into a buffer that we provide. Frames arrive many at a time in a scratch
buffer that all connections of a loop share, because a read fills it and we empty it in one go; whole frames are copied
out, so nothing ever refers to the scratch buffer later. The beginning of an incomplete frame gets a buffer of its own,
allocated only after its length was checked, and the transport writes straight into it. A large frame's buffer grows
with what arrives, so announcing many bytes costs a peer as much as sending them. So an idle connection holds no buffer,
and no buffer is reused while anything could still refer to it.

The dispatcher answers with buffers (send now), a future of them (parked: an ack or a long poll), or None (no reply; a
future may return that too). Replies leave strictly in request order: a finished reply waits behind unfinished ones.

A connection is busy while its peer leaves replies unread, has too many requests or reply bytes waiting, or waits for
anything but a produce. Only produces are started before earlier ones are done, unless an earlier one has so many
partitions that it is read in turns with other clients; the dispatcher answers that with a task. A connection is also
busy after many requests at once, until the other connections had their turn, and before a large request while the
process reads too many of them (`RequestMemory`). A busy connection serves no frame. What arrives meanwhile is kept, up
to `READ_AHEAD_BYTES`; only then does reading pause, so that a peer that disconnects while it waits is noticed at once.

Requests that have arrived whole when the peer disconnects are served all the same, as by Kafka: a producer with acks=0
sends and closes. Their replies go nowhere, and they have `LOST_S_MAX`. What is behind a request that was waiting when
the peer disconnected, or behind one that waits for new records, is dropped: its reply would have been the next to fail.
A connection that we close ourselves serves nothing more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Protocol, Union

from penstock.model.errors import ClosingReply, ProtocolError, Throttled
from penstock.server.limits import ConnectionLimits

Buffer = bytes | bytearray | memoryview
Reply = list[Buffer]
Answer = Union[Reply, "asyncio.Future[Reply | None]", None]

SCRATCH_BYTES = 256 * 1024
READ_AHEAD_BYTES = 64 * 1024
# After this many requests of one peer the others get their turn.
FRAMES_PER_TURN = 16
# A frame's buffer begins with this much and is made four times larger whenever it is full.
FRAME_BYTES_FIRST = 128 * 1024
SLOWEST_BYTES_PER_MS = 64
# The largest request before sign-in, which is Kafka's limit too.
UNSIGNED_BYTES_MAX = 512 * 1024
# A peer with unread replies must take this much of them within the write-stall timeout.
UNSTALLING_BYTES = 64 * 1024
PRODUCE = b"\x00\x00"
# Fetch and ShareFetch wait for records, which is pointless once the peer has gone.
LONG_POLLS = frozenset((b"\x00\x01", b"\x00\x4e"))
# What was received from a peer that has gone is served for this long.
LOST_S_MAX = 10.0
_SIZE = Struct(">i")

logger = logging.getLogger("penstock.server")


class RequestSession(Protocol):
    """What the dispatcher keeps about one connection (the peer's address, client software, principal)."""

    # A peer that has not signed in yet may only send small requests, and has little time.
    is_signed_in: bool

    @property
    def owner(self) -> str:
        """Whose share of what all connections have takes this one: its user's, or its address's."""

    def opened(self, connection: Connection, certificate: Mapping[str, object] | None) -> None:
        """The connection is open; `certificate` is the peer's TLS certificate, verified."""

    def answer(self, frame: bytearray) -> Answer:
        """Serve one request frame. A ProtocolError closes the connection; with Throttled it is presented again."""

    def closed(self) -> None:
        """The connection is closed; parked work for it may be dropped."""


class Connection(asyncio.BufferedProtocol):
    """A framed, ordered, bounded conversation with one peer."""

    __slots__ = (
        "_blocking_reply",
        "_busy",
        "_closed",
        "_closing",
        "_drained",
        "_frame",
        "_frame_filled",
        "_frame_owner",
        "_frame_size",
        "_frame_started_at",
        "_held",
        "_limits",
        "_loop",
        "_lost_at",
        "_muted_until",
        "_on_closed",
        "_pending",
        "_pending_bytes",
        "_reading",
        "_rest",
        "_scratch",
        "_session",
        "_transport",
        "_unsent_bytes",
        "_write_paused",
        "_write_paused_at",
        "last_active_at",
        "opened_at",
        "peer",
    )

    def __init__(
        self,
        session: RequestSession,
        limits: ConnectionLimits,
        loop: asyncio.AbstractEventLoop,
        peer: tuple[str, int],
        scratch: bytearray,
        on_closed: Callable[[Connection], None],
    ) -> None:
        self.peer = peer
        self.last_active_at = self.opened_at = loop.time()
        self._session = session
        self._limits = limits
        self._loop = loop
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._scratch = scratch
        # What arrived and is not served yet: a part of a frame's length, or frames that came while we were busy.
        self._rest = b""
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._frame_filled = 0
        # In whose share it is counted, which a sign-in does not change.
        self._frame_owner = ""
        self._frame_started_at: float | None = None
        # A request that came too early, and what it counts for in the memory of requests that are read.
        self._held: tuple[bytearray, int] | None = None
        self._pending: deque[Reply | asyncio.Future[Reply | None]] = deque()
        # Bytes of finished replies that wait behind unfinished ones.
        self._pending_bytes = 0
        # The parked request that nothing may overtake.
        self._blocking_reply: asyncio.Future[Reply | None] | None = None
        self._busy = False
        self._reading = True
        self._write_paused = False
        # Over its quota: no request is served before this time.
        self._muted_until = 0.0
        self._write_paused_at = 0.0
        self._unsent_bytes = 0
        self._closing = False
        # When the peer disconnected, while requests of it are still being served.
        self._lost_at: float | None = None
        self._drained: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] | None = None

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        self._transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes_max)  # type: ignore[union-attr]
        self._session.opened(self, transport.get_extra_info("peercert"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._abandon_pending()
        if self._closing or self._blocking_reply is not None or not self._has_whole_request():
            self._end()
            return
        self._lost_at = self._loop.time()
        self._write_paused = False
        self._pending_bytes = 0
        self._loop.call_soon(self._resume)

    def _abandon_pending(self) -> None:
        if self._limits.request_memory is not None:
            self._limits.request_memory.forget(self._resume)
        for waiting in self._pending:
            if isinstance(waiting, asyncio.Future):
                waiting.cancel()
        self._pending.clear()

    def _has_whole_request(self) -> bool:
        if self._held is not None:
            return True
        if self._frame is not None:
            return self._frame_filled == self._frame_size
        rest = self._rest
        return len(rest) >= 4 and len(rest) - 4 >= _SIZE.unpack_from(rest)[0]

    def _end(self) -> None:
        """Nothing more is served: release everything."""
        self._closing = True
        self._lost_at = None
        self._abandon_pending()
        if self._frame is not None:
            self._frame = None
            self._release_memory(self._frame_size)
        if self._held is not None:
            self._release_memory(self._held[1])
            self._held = None
        self._rest = b""
        self._session.closed()
        for awaited in (self._drained, self._closed):
            if awaited is not None and not awaited.done():
                awaited.set_result(None)
        self._on_closed(self)

    def pause_writing(self) -> None:
        self._write_paused = True
        self._write_paused_at = self._loop.time()
        self._unsent_bytes = 2**63
        self._busy = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._resume()

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
                    self._frame_full(self._frame)
            else:
                self._split_scratch(len(self._rest) + nbytes)
        except ProtocolError as error:
            logger.warning("closing %s:%d: %s", *self.peer, error)
            self.abort()

    def _split_scratch(self, filled: int) -> None:
        """Serve every whole frame among the first `filled` bytes of the scratch buffer; keep the rest."""
        scratch = self._scratch
        position = 0
        frames_left = FRAMES_PER_TURN
        while filled - position >= 4 and not self._busy:
            (size,) = _SIZE.unpack_from(scratch, position)
            if size <= 0 or size > self._limits.request_bytes_max:
                raise ProtocolError(
                    f"a request of {size} bytes was announced; between 1 and "
                    f"{self._limits.request_bytes_max} (socket.request.max.bytes) are accepted"
                )
            if size > UNSIGNED_BYTES_MAX and not self._session.is_signed_in:
                raise ProtocolError(
                    f"a request of {size} bytes was announced before signing in; {UNSIGNED_BYTES_MAX} are accepted"
                )
            start = position + 4
            if filled - start < size and self._lost_at is not None:
                break
            if filled - start < size:
                memory = self._limits.request_memory
                owner = self._session.owner
                if memory is not None and not memory.admit(owner, size, self._resume):
                    self._busy = True
                    break
                self._frame_owner = owner
                self._frame_filled = filled - start
                frame = bytearray(min(size, max(FRAME_BYTES_FIRST, 2 * self._frame_filled)))
                frame[: self._frame_filled] = memoryview(scratch)[start:filled]
                self._frame = frame
                self._frame_size = size
                position = filled
                break
            position = start + size
            self._serve(scratch[start:position])
            if self._closing:
                return
            frames_left -= 1
            if not frames_left and not self._busy:
                self._busy = True
                self._loop.call_soon(self._resume)
        self._rest = bytes(scratch[position:filled]) if position < filled else b""
        self._frame_started_at = self._loop.time() if self._rest or self._frame is not None else None
        if len(self._rest) > READ_AHEAD_BYTES:
            self._pause_reading()

    def _frame_full(self, frame: bytearray) -> None:
        """The frame's buffer is full: enlarge it, serve it, or keep it until we are less busy."""
        if len(frame) < self._frame_size:
            self._frame = bytearray(min(self._frame_size, 4 * len(frame)))
            self._frame[: len(frame)] = frame
        elif self._busy:
            self._pause_reading()
        else:
            self._frame = None
            self._frame_started_at = None
            self._serve_counted(frame, self._frame_size)

    def _serve_counted(self, frame: bytearray, size: int) -> None:
        """Serve a request that counts `size` bytes until it was served or dropped."""
        try:
            self._serve(frame)
        finally:
            if self._held is not None and self._held[0] is frame:
                self._held = (frame, size)
            else:
                self._release_memory(size)

    def _release_memory(self, size: int) -> None:
        if size and self._limits.request_memory is not None:
            self._limits.request_memory.release(self._frame_owner, size)

    def _serve(self, frame: bytearray) -> None:
        try:
            answer = self._session.answer(frame)
        except Throttled as throttled:
            self._held = (frame, 0)
            self.mute(throttled.delay_ms)
            return
        if answer is None:
            return
        pending = self._pending
        if isinstance(answer, asyncio.Future):
            if self._lost_at is not None and bytes(frame[:2]) in LONG_POLLS:
                answer.cancel()
                self._end()
                return
            if frame[:2] != PRODUCE or isinstance(answer, asyncio.Task):
                self._blocking_reply = answer
                self._busy = True
            pending.append(answer)
            answer.add_done_callback(self._parked_done)
        elif pending:
            pending.append(answer)
            self._pending_bytes += sum(map(len, answer))
        else:
            if self._transport is not None:
                self._send(answer)
            return
        limits = self._limits
        if len(pending) >= limits.requests_in_flight_max or self._pending_bytes > limits.write_buffer_bytes_max:
            self._busy = True

    def _parked_done(self, done: asyncio.Future[Reply | None]) -> None:
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
                reply = head.result()
            else:
                reply = head
                self._pending_bytes -= sum(map(len, head))
            pending.popleft()
            if self._transport is not None and reply is not None:
                self._send(reply)
        self.last_active_at = self._loop.time()
        if done is self._blocking_reply:
            self._blocking_reply = None
        if self._busy:
            self._resume()
        if not pending and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _send(self, reply: Reply) -> None:
        assert self._transport is not None
        if len(reply) == 1:
            self._transport.write(reply[0])
        else:
            self._transport.writelines(reply)

    def _parked_failed(self, failed: asyncio.Future[Reply | None]) -> None:
        if not failed.cancelled():
            error = failed.exception()
            if isinstance(error, ClosingReply):
                self._close_with(error)
                return
            if isinstance(error, ProtocolError):
                logger.warning("closing %s:%d: %s", *self.peer, error)
            else:
                logger.error("a request of %s:%d failed; closing its connection", *self.peer, exc_info=error)
        self.abort()

    def _close_with(self, last: ClosingReply) -> None:
        logger.info("closing %s:%d: %s", *self.peer, last)
        self._closing = True
        if self._transport is not None:
            self._send(last.reply)
            self._transport.close()

    def mute(self, duration_ms: int) -> None:
        """Serve no requests for some time; replies are still sent."""
        until = self._loop.time() + duration_ms / 1000
        if until > self._muted_until:
            self._muted_until = until
            self._busy = True
            self._loop.call_at(until, self._unmute, until)

    def _unmute(self, until: float) -> None:
        # Without a look at the clock: it is coarse, and may say that a timer has come too early.
        if until == self._muted_until:
            self._muted_until = 0.0
        self._resume()

    def _pause_reading(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        """Serve what came while we were busy, and read on, unless there is still a reason to wait."""
        limits = self._limits
        self._busy = (
            self._muted_until > 0
            or self._write_paused
            or self._blocking_reply is not None
            or len(self._pending) >= limits.requests_in_flight_max
            or self._pending_bytes > limits.write_buffer_bytes_max
        )
        if self._busy or self._closing or (self._transport is None and self._lost_at is None):
            return
        if self._frame_started_at is not None:
            # The time that a frame waited for us does not count against its sender.
            self._frame_started_at = self.last_active_at = self._loop.time()
        try:
            if self._held is not None:
                frame, size = self._held
                self._held = None
                self._serve_counted(frame, size)
                if self._busy or self._closing:
                    return
            if self._frame is not None:
                if self._frame_filled == self._frame_size:
                    self._frame_full(self._frame)
            elif self._rest:
                filled = len(self._rest)
                self._scratch[:filled] = self._rest
                self._split_scratch(filled)
        except ProtocolError as error:
            logger.warning("closing %s:%d: %s", *self.peer, error)
            self.abort()
            return
        if self._transport is None:
            if self._lost_at is not None and not self._busy and not self._has_whole_request():
                self._end()
            return
        can_read = len(self._rest) <= READ_AHEAD_BYTES and (
            self._frame is None or self._frame_filled < len(self._frame)
        )
        if can_read and not self._reading and not self._closing:
            self._reading = True
            self._transport.resume_reading()

    # The listener's side.

    def overdue(self, now: float) -> str | None:
        """Why this connection should be closed at loop time `now`, or None."""
        limits = self._limits
        if self._write_paused and self._transport is not None:
            unsent = self._transport.get_write_buffer_size()
            if unsent <= self._unsent_bytes - UNSTALLING_BYTES:
                self._unsent_bytes = unsent
                self._write_paused_at = now
            elif (now - self._write_paused_at) * 1000 > limits.write_stall_ms_max:
                return "it took no reply bytes for penstock.write.stall.timeout.ms"
        if self._lost_at is not None:
            is_late = now - self._lost_at > LOST_S_MAX
            return "its peer disconnected, and its last requests could not be served in time" if is_late else None
        if self._frame_started_at is not None and not self._busy:
            # A large request gets the time that a slow but honest link needs for it.
            size = self._frame_size if self._frame is not None else 0
            if (now - self._frame_started_at) * 1000 > limits.request_read_ms_max + size // SLOWEST_BYTES_PER_MS:
                return "its request did not arrive whole within penstock.request.read.timeout.ms"
        if not self._session.is_signed_in and (now - self.opened_at) * 1000 > limits.sign_in_ms_max:
            return "it did not sign in within penstock.sign.in.timeout.ms"
        if (now - self.last_active_at) * 1000 > limits.idle_ms_max:
            return "it was idle for connections.max.idle.ms"
        return None

    @property
    def is_closing(self) -> bool:
        """Whether it is on its way out."""
        return self._closing

    def abort(self) -> None:
        """Close at once; unsent replies are dropped."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()
        elif self._lost_at is not None:
            self._end()

    async def drain_and_close(self) -> None:
        """Accept no more requests, send the pending replies, then close; returns when all of it is done."""
        if self._transport is None:
            return
        self._pause_reading()
        self._closing = True
        if self._pending:
            self._drained = self._loop.create_future()
            await self._drained
        if self._transport is not None:
            self._closed = self._loop.create_future()
            self._transport.close()
            await self._closed
