"""A connection with a transport and a session that do what a test sets: frames in, replies out, limits in between."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from penstock.model.errors import ClosingReply, ProtocolError, Throttled
from penstock.server.connection import (
    FRAME_BYTES_FIRST,
    FRAMES_PER_TURN,
    LOST_S_MAX,
    READ_AHEAD_BYTES,
    SCRATCH_BYTES,
    UNSIGNED_BYTES_MAX,
    Connection,
)
from penstock.server.limits import ConnectionLimits
from penstock.server.request_memory import RequestMemory

PRODUCE = b"\0\0"
FETCH = b"\0\x01"
LIMITS = ConnectionLimits(
    request_bytes_max=10_000_000,
    idle_ms_max=60_000,
    request_read_ms_max=1000,
    write_stall_ms_max=2000,
    write_buffer_bytes_max=1000,
    requests_in_flight_max=50,
)


class Transport:
    """Takes what is written; pauses its protocol when told, as a real one does above its high-water mark."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.reading = True
        self.closed = False
        self.unsent = 0
        self.protocol: Connection

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def get_extra_info(self, name: str) -> Any:
        return {"peercert": {"subject": ()}}.get(name)

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def writelines(self, buffers: list[bytes]) -> None:
        self.written.append(b"".join(buffers))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class Session:
    """Answers a frame with itself, or with a future for those that begin with an API in `parking`."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.parked: list[asyncio.Future[Any]] = []
        self.parking: tuple[bytes, ...] = ()
        self.throttled: list[int] = []
        self.is_closed = False
        self.is_signed_in = True
        self.owner = "User:alice"

    def opened(self, connection: Connection, certificate: Mapping[str, object] | None) -> None:
        self.connection, self.certificate = connection, certificate

    def answer(self, frame: bytearray) -> Any:
        self.frames.append(bytes(frame))
        if bytes(frame).endswith(b"bad"):
            raise ProtocolError("a bad frame")
        if self.throttled:
            raise Throttled(self.throttled.pop())
        if frame[:2] in self.parking:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.parked.append(future)
            return future
        return None if bytes(frame).endswith(b"silent") else [bytes(frame)]

    def closed(self) -> None:
        self.is_closed = True


class World:
    def __init__(self, limits: ConnectionLimits = LIMITS) -> None:
        self.transport = Transport()
        self.session = Session()
        self.gone: list[Connection] = []
        self.connection = Connection(
            self.session,
            limits,
            asyncio.get_running_loop(),
            ("peer", 1),
            bytearray(SCRATCH_BYTES),
            self.gone.append,
        )
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def receive(self, data: bytes, piece: int = SCRATCH_BYTES) -> None:
        """Deliver bytes as a loop would, as many at a time as fit or as `piece` allows."""
        while data:
            assert self.transport.reading, "bytes were delivered to a paused connection"
            buffer = self.connection.get_buffer(-1)
            assert len(buffer) > 0
            count = min(len(buffer), piece, len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            buffer.release()
            self.connection.buffer_updated(count)

    @property
    def replies(self) -> list[bytes]:
        return self.transport.written


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def in_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run an async test on a loop of its own."""

    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@pytest.mark.parametrize("piece", [1, 3, 4, 5, 7, 100_000])
def test_frames_arrive_whole_however_they_are_cut(piece: int) -> None:
    async def check() -> None:
        world = World()
        contents = [b"first", b"x" * 300, b"y", bytes(range(256)) * 4]
        world.receive(b"".join(map(frame, contents)), piece)
        assert world.session.frames == contents
        assert world.replies == contents

    asyncio.run(check())


@in_loop
async def test_a_large_frame_grows_its_buffer() -> None:
    world = World()
    content = bytes(range(256)) * 8000
    data = frame(content)
    world.receive(data[:100])
    assert len(world.connection.get_buffer(-1)) <= FRAME_BYTES_FIRST
    world.receive(data[100:], 50_000)
    assert world.session.frames == [content]


@in_loop
async def test_nothing_overtakes_a_produce_that_is_still_being_read() -> None:
    world = World()
    read = asyncio.Event()

    async def answered() -> list[bytes]:
        await read.wait()
        return [b"large"]

    answer = world.session.answer
    world.session.answer = lambda frame: (  # type: ignore[method-assign]
        asyncio.ensure_future(answered()) if bytes(frame).endswith(b"large") else answer(frame)
    )
    world.receive(frame(PRODUCE + b"large") + frame(PRODUCE + b"small"))
    await asyncio.sleep(0)
    assert world.session.frames == []
    read.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert world.replies == [b"large", PRODUCE + b"small"]


@in_loop
async def test_impossible_sizes_close_the_connection() -> None:
    for size in (-1, 0, 2**31 - 1, -(2**31), 10_000_001):
        world = World()
        world.receive(struct.pack(">i", size))
        assert world.transport.closed
        assert not world.session.frames


@in_loop
async def test_a_bad_frame_closes_the_connection_and_nothing_behind_it_is_served() -> None:
    world = World()
    world.receive(frame(b"good") + frame(b"bad") + frame(b"never"))
    assert world.transport.closed
    assert world.session.frames == [b"good", b"bad"]
    await asyncio.sleep(0)
    assert world.gone == [world.connection]
    assert world.session.is_closed


@in_loop
async def test_produces_overtake_nothing_but_are_all_begun() -> None:
    world = World()
    world.session.parking = (PRODUCE,)
    world.receive(frame(PRODUCE + b"1") + frame(PRODUCE + b"2") + frame(b"\0\x12quick"))
    assert len(world.session.frames) == 3
    assert world.replies == []
    world.session.parked[1].set_result([b"two"])
    await asyncio.sleep(0)
    assert world.replies == []
    world.session.parked[0].set_result([b"one"])
    await asyncio.sleep(0)
    assert world.replies == [b"one", b"two", b"\0\x12quick"]


@in_loop
async def test_behind_anything_else_that_is_parked_nothing_is_begun() -> None:
    world = World()
    world.session.parking = (FETCH,)
    world.receive(frame(FETCH + b"poll") + frame(b"\0\x12behind") + frame(FETCH + b"poll again") + frame(b"last"))
    assert world.session.frames == [FETCH + b"poll"]
    assert world.transport.reading, "a peer that goes away now must be noticed"
    world.session.parked[0].set_result([b"polled"])
    await asyncio.sleep(0)
    assert world.replies == [b"polled", b"\0\x12behind"]
    world.session.parked[1].set_result([b"polled again"])
    await asyncio.sleep(0)
    assert world.replies[2:] == [b"polled again", b"last"]


@in_loop
async def test_reading_ahead_is_bounded() -> None:
    world = World()
    world.session.parking = (FETCH,)
    world.receive(frame(FETCH))
    contents: list[bytes] = []
    while world.transport.reading:
        contents.append(b"%05d" % len(contents) + bytes(995))
        world.receive(frame(contents[-1]))
        assert len(contents) <= READ_AHEAD_BYTES // 1000 + 1
    world.session.parked[0].set_result([b"polled"])
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.transport.reading
    assert world.session.frames[1:] == contents


@in_loop
async def test_a_frame_that_ends_while_busy_waits() -> None:
    world = World()
    world.session.parking = (PRODUCE,)
    large = b"\0\x12" + bytes(500_000)
    world.receive(frame(PRODUCE) + frame(large)[:1000])
    world.connection.pause_writing()
    world.receive(frame(large)[1000:], 100_000)
    assert not world.transport.reading
    assert world.session.frames == [PRODUCE]
    world.connection.resume_writing()
    assert world.session.frames == [PRODUCE, large]
    world.session.parked[0].set_result([b"one"])
    await asyncio.sleep(0)
    assert world.transport.reading
    world.receive(frame(b"on"))
    assert world.session.frames[-1] == b"on"


@in_loop
async def test_large_requests_are_read_within_the_memory_of_the_process() -> None:
    limits = replace(LIMITS, request_memory=RequestMemory(1_000_000))
    first, second, third, fourth = (World(limits) for _ in range(4))
    large = frame(b"\0\x12" + bytes(999_998))
    first.receive(large[:300_000])
    for late in (second, third, fourth):
        late.receive(large[:100_000])
        assert not late.transport.reading
    # What is small is served: others may wait for it.
    small = World(limits)
    small.receive(frame(b"\0\x12small"))
    assert small.replies == [b"\0\x12small"]
    first.receive(large[300_000:])
    assert first.replies == [large[4:]]
    assert second.transport.reading
    assert not third.transport.reading
    # A connection that waits and closes is forgotten, and one that is served and closes makes room.
    third.connection.connection_lost(None)
    second.connection.connection_lost(None)
    assert fourth.transport.reading
    fourth.receive(large[100_000:])
    assert fourth.replies == [large[4:]]
    assert third.session.frames == second.session.frames == []


@in_loop
async def test_users_share_the_memory_of_requests_and_take_turns() -> None:
    limits = replace(LIMITS, request_memory=RequestMemory(1_000_000))
    large = frame(b"\0\x12" + bytes(299_998))

    def begin(user: str) -> World:
        world = World(limits)
        world.session.owner = user
        world.receive(large[:100_000])
        return world

    alices = [begin("User:alice") for _ in range(6)]
    assert [world.transport.reading for world in alices] == [True] * 3 + [False] * 3
    # However many requests one user has that do not arrive, there is room for one of another.
    bobs = [begin("User:bob") for _ in range(2)]
    assert [world.transport.reading for world in bobs] == [True, False]
    bobs[0].receive(large[100_000:])
    assert bobs[0].replies == [large[4:]]
    assert bobs[1].transport.reading
    assert not alices[3].transport.reading
    carols = [begin("User:carol") for _ in range(2)]
    alices[0].receive(large[100_000:])
    assert [world.transport.reading for world in (alices[3], *carols)] == [False, True, False]
    alices[1].receive(large[100_000:])
    bobs[1].receive(large[100_000:])
    assert [world.transport.reading for world in (*alices[4:], *carols)] == [False, False, True, True]
    for world in (alices[2], alices[3], *carols):
        world.receive(large[100_000:])
    assert all(world.transport.reading for world in alices[4:])
    for world in alices[4:]:
        world.receive(large[100_000:])
    memory = limits.request_memory
    assert memory is not None
    assert (memory._bytes, dict(memory._of), dict(memory._waiting)) == (0, {}, {})


@in_loop
async def test_a_bad_request_gives_its_memory_back() -> None:
    limits = replace(LIMITS, request_memory=RequestMemory(300_000))
    bad, good = World(limits), World(limits)
    large = frame(bytes(400_000) + b"bad")
    bad.receive(large[:200_000])
    good.receive(large[:200_000])
    assert not good.transport.reading
    bad.receive(large[200_000:])
    assert bad.transport.closed
    assert good.transport.reading


@in_loop
async def test_a_peer_with_many_requests_gives_the_others_a_turn() -> None:
    world = World()
    world.receive(frame(b"\0\x12") * (2 * FRAMES_PER_TURN + 3))
    assert len(world.session.frames) == FRAMES_PER_TURN
    for _ in range(4):
        await asyncio.sleep(0)
    assert len(world.session.frames) == 2 * FRAMES_PER_TURN + 3


@in_loop
async def test_replies_that_wait_are_bounded_in_bytes() -> None:
    world = World()
    world.session.parking = (PRODUCE,)
    world.receive(frame(PRODUCE) + frame(b"x" * 600) * 5)
    assert len(world.session.frames) == 3, "after 1,200 waiting bytes no more requests are served"
    world.session.parked[0].set_result([b"done"])
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(world.replies) == 6


@in_loop
async def test_requests_in_flight_are_bounded() -> None:
    world = World()
    world.session.parking = (PRODUCE,)
    for _ in range(60):
        if world.transport.reading:
            world.receive(frame(PRODUCE))
            await asyncio.sleep(0)
    assert len(world.session.frames) == LIMITS.requests_in_flight_max


@in_loop
async def test_a_request_without_a_reply_takes_no_place_in_the_order() -> None:
    world = World()
    world.session.parking = (PRODUCE,)
    world.receive(frame(PRODUCE) + frame(b"\0\x12silent") + frame(b"\0\x12next"))
    world.session.parked[0].set_result([b"one"])
    await asyncio.sleep(0)
    assert world.replies == [b"one", b"\0\x12next"]


@in_loop
async def test_losing_the_connection_cancels_what_is_parked() -> None:
    world = World()
    world.session.parking = (PRODUCE, FETCH)
    world.receive(frame(PRODUCE) + frame(FETCH))
    world.connection.connection_lost(None)
    assert all(future.cancelled() for future in world.session.parked)
    assert world.gone == [world.connection]
    await asyncio.sleep(0)
    assert world.replies == []


@in_loop
async def test_a_parked_request_that_fails_closes_the_connection() -> None:
    world = World()
    world.session.parking = (PRODUCE,)
    world.receive(frame(PRODUCE))
    world.session.parked[0].set_exception(RuntimeError("a bug"))
    await asyncio.sleep(0)
    assert world.transport.closed


@in_loop
async def test_deadlines() -> None:
    now = asyncio.get_running_loop().time()
    world = World()
    assert world.connection.overdue(now + 59) is None
    assert "idle" in str(world.connection.overdue(now + 61))
    world.receive(b"\0\0")
    assert world.connection.overdue(now + 0.9) is None
    assert "whole" in str(world.connection.overdue(now + 1.2))
    world.receive(struct.pack(">i", 3)[2:] + b"abc")
    assert world.connection.overdue(now + 30) is None
    # A large request gets more time.
    world.receive(struct.pack(">i", 6_400_000) + b"x")
    assert world.connection.overdue(now + 50) is None


@in_loop
async def test_a_reader_is_stalled_only_when_it_takes_nothing() -> None:
    now = asyncio.get_running_loop().time()
    world = World()
    world.transport.unsent = 1_000_000
    world.connection.pause_writing()
    assert world.connection.overdue(now + 1) is None
    world.transport.unsent = 800_000
    assert world.connection.overdue(now + 2.5) is None
    world.transport.unsent = 799_999
    assert world.connection.overdue(now + 3.5) is None
    assert "took no reply bytes" in str(world.connection.overdue(now + 5))


@in_loop
async def test_the_time_a_frame_waits_for_us_is_not_held_against_its_sender() -> None:
    world = World()
    world.session.parking = (FETCH,)
    now = asyncio.get_running_loop().time()
    world.receive(frame(FETCH) + b"\0\0")
    assert world.connection.overdue(now + 30) is None
    world.session.parked[0].set_result([b"polled"])
    await asyncio.sleep(0)
    assert world.connection.overdue(asyncio.get_running_loop().time() + 0.5) is None


@in_loop
async def test_draining_answers_what_was_accepted_and_takes_no_more() -> None:
    world = World()
    world.session.parking = (PRODUCE,)
    world.receive(frame(PRODUCE))
    draining = asyncio.ensure_future(world.connection.drain_and_close())
    await asyncio.sleep(0)
    assert not world.transport.reading
    assert not draining.done()
    world.session.parked[0].set_result([b"one"])
    await asyncio.wait_for(draining, 1)
    assert world.replies == [b"one"]
    assert world.transport.closed


def test_before_signing_in_only_small_requests_are_taken() -> None:
    async def scenario() -> None:
        world = World(ConnectionLimits())
        world.session.is_signed_in = False
        world.receive(frame(b"x" * 100))
        assert world.session.frames == [b"x" * 100]
        world.receive(struct.pack(">i", UNSIGNED_BYTES_MAX + 1))
        await asyncio.sleep(0)
        assert world.transport.closed

        signed_in = World(ConnectionLimits())
        signed_in.receive(struct.pack(">i", UNSIGNED_BYTES_MAX + 1))
        assert not signed_in.transport.closed

    asyncio.run(scenario())


def test_a_peer_that_does_not_sign_in_is_disconnected() -> None:
    async def scenario() -> None:
        world = World(ConnectionLimits(sign_in_ms_max=1_000))
        later = asyncio.get_running_loop().time() + 2
        assert world.connection.overdue(later) is None
        world.session.is_signed_in = False
        assert "sign in" in (world.connection.overdue(later) or "")

    asyncio.run(scenario())


def test_a_closing_reply_is_the_last_thing_that_is_sent() -> None:
    async def scenario() -> None:
        world = World()
        world.session.parking = (b"p1",)
        world.receive(frame(b"p1") + frame(b"p2"))
        world.session.parked[0].set_exception(ClosingReply("refused", [b"no"]))
        await asyncio.sleep(0)
        assert world.transport.written == [b"no"]
        assert world.transport.closed
        assert world.session.frames == [b"p1"]

    asyncio.run(scenario())


def test_a_muted_connection_answers_and_serves_later() -> None:
    async def scenario() -> None:
        world = World()
        muted_until = asyncio.get_running_loop().time() + 1
        world.connection.mute(1_000)
        world.receive(frame(b"later"))
        assert world.session.frames == []
        # A shorter time does not end a longer one.
        world.connection.mute(10)
        while not world.transport.written:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() >= muted_until
        assert world.transport.written == [b"later"]

    asyncio.run(scenario())


def test_a_connection_is_muted_no_longer_when_its_timer_fires_early() -> None:
    """Clocks of loops are coarse: at a timer's time they may show a little less."""

    async def scenario() -> None:
        world = World()
        world.connection.mute(60_000)
        world.receive(frame(b"later"))
        world.connection._unmute(world.connection._muted_until)
        assert world.transport.written == [b"later"]

    asyncio.run(scenario())


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@in_loop
async def test_requests_that_arrived_whole_are_served_after_the_peer_has_closed() -> None:
    world = World()
    contents = [PRODUCE + b"%d" % number + b"silent" for number in range(3 * FRAMES_PER_TURN)]
    world.receive(b"".join(map(frame, contents)) + frame(PRODUCE + b"cut short")[:7])
    assert len(world.session.frames) == FRAMES_PER_TURN
    world.transport.close()
    await turns()
    assert world.session.frames == contents
    assert world.gone == [world.connection]
    assert world.session.is_closed


@in_loop
async def test_after_the_peer_has_closed_requests_still_wait_for_each_other() -> None:
    world = World()
    commit = b"\0\x08commit"
    world.session.parking = (PRODUCE, commit[:2])
    world.receive(frame(b"\0\x12") * FRAMES_PER_TURN)
    world.receive(b"".join(map(frame, (PRODUCE + b"1", commit, PRODUCE + b"2"))))
    world.connection.connection_lost(None)
    await turns()
    assert world.session.frames[FRAMES_PER_TURN:] == [PRODUCE + b"1", commit]
    produced, committed = world.session.parked
    assert world.gone == []
    produced.set_result(None)
    committed.set_result([b"committed"])
    await turns()
    assert world.session.frames[-1] == PRODUCE + b"2"
    assert world.gone == [world.connection]


@in_loop
async def test_behind_a_request_that_waits_nothing_is_served_once_the_peer_has_gone() -> None:
    for is_waiting_before in (True, False):
        world = World()
        world.session.parking = (FETCH,)
        if not is_waiting_before:
            world.receive(frame(b"\0\x12") * FRAMES_PER_TURN)
        world.receive(frame(FETCH) + frame(PRODUCE))
        world.connection.connection_lost(None)
        await turns()
        assert world.session.frames[-1] == FETCH
        assert world.session.parked[0].cancelled()
        assert world.gone == [world.connection]


@in_loop
async def test_a_large_request_that_arrived_whole_is_served_after_the_peer_has_closed() -> None:
    limits = replace(LIMITS, request_memory=RequestMemory(1_000_000))
    world, next_world = World(limits), World(limits)
    world.session.parking = (FETCH,)
    large = PRODUCE + bytes(999_998)
    world.receive(frame(FETCH) + frame(b"\0\x12") + frame(large)[:1000])
    world.session.parked[0].set_result([b"polled"])
    await turns()
    world.connection.mute(3_600_000)
    world.receive(frame(large)[1000:])
    world.transport.close()
    await turns()
    assert world.session.frames[-1] == b"\0\x12", "over its quota, it has to wait"
    world.connection._unmute(world.connection._muted_until)
    assert world.session.frames[-1] == large
    assert world.gone == [world.connection]
    next_world.receive(frame(large))
    assert next_world.session.frames == [large]


@in_loop
async def test_what_a_peer_that_has_gone_left_behind_is_bounded_in_time() -> None:
    world = World()
    world.session.parking = (b"\0\x0b",)
    world.receive(frame(b"\0\x12") * FRAMES_PER_TURN + frame(b"\0\x0bjoin") + frame(b"\0\x12never"))
    world.connection.connection_lost(None)
    await turns()
    now = asyncio.get_running_loop().time()
    assert world.gone == []
    assert world.connection.overdue(now + LOST_S_MAX - 1) is None
    assert world.connection.overdue(now + LOST_S_MAX + 1) is not None
    world.connection.abort()
    assert world.gone == [world.connection]
    assert world.session.parked[0].cancelled()
    await turns()
    assert world.session.frames[-1] == b"\0\x0bjoin"


@in_loop
async def test_a_connection_that_we_close_serves_nothing_more() -> None:
    for close in ("abort", "bad frame", "stop"):
        world = World()
        world.receive(frame(b"\0\x12") * (FRAMES_PER_TURN - 1) + frame(b"bad" if close == "bad frame" else b"\0\x12"))
        if close != "bad frame":
            world.receive(frame(b"\0\x12never"))
        if close == "abort":
            world.connection.abort()
        elif close == "stop":
            await world.connection.drain_and_close()
        await turns()
        assert len(world.session.frames) == FRAMES_PER_TURN, close
        assert world.gone == [world.connection]


@in_loop
async def test_a_request_that_comes_too_early_is_presented_again_before_those_behind_it() -> None:
    limits = replace(LIMITS, request_memory=RequestMemory(1_000_000))
    world, other = World(limits), World(limits)
    large = PRODUCE + bytes(999_998)
    world.session.throttled = [3_600_000, 3_600_000]
    world.receive(frame(large) + frame(b"\0\x12behind"))
    assert world.session.frames == [large]
    # It still counts among the requests that are read.
    other.receive(frame(large)[:100_000])
    assert not other.transport.reading
    world.connection._unmute(world.connection._muted_until)
    assert world.session.frames == [large, large]
    assert not other.transport.reading
    world.connection._unmute(world.connection._muted_until)
    assert world.session.frames == [large, large, large, b"\0\x12behind"]
    assert world.replies == [large, b"\0\x12behind"]
    assert other.transport.reading


@in_loop
async def test_a_small_request_that_came_too_early_is_served_after_its_peer_has_gone_or_dropped() -> None:
    for is_aborted in (False, True):
        world = World()
        world.session.throttled = [3_600_000]
        world.receive(frame(PRODUCE + b"1") + frame(PRODUCE + b"2"))
        world.transport.close()
        await turns()
        assert world.session.frames == [PRODUCE + b"1"]
        assert world.gone == []
        if is_aborted:
            world.connection.abort()
        world.connection._unmute(world.connection._muted_until)
        await turns()
        assert world.session.frames == [PRODUCE + b"1"] + ([] if is_aborted else [PRODUCE + b"1", PRODUCE + b"2"])
        assert world.gone == [world.connection]
