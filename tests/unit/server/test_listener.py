"""A listening socket: the kernel's buffers, and limits that change while it listens."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from penstock.server.limits import ConnectionLimits
from penstock.server.listener import Listener

REQUEST = b"\0\0\0\1x"


class Session:
    def answer(self, frame: bytearray) -> Any:
        return [bytes(frame)]

    def closed(self) -> None: ...


async def buffers(limits: ConnectionLimits) -> tuple[int, int]:
    """The send and receive buffers of a connection that a listener with these limits accepted."""
    listener = Listener("PLAINTEXT", "127.0.0.1", 0, limits)
    await listener.bind()
    listener.start(lambda _: Session())
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(REQUEST)
    assert await reader.readexactly(1) == b"x"
    (connection,) = listener._connections
    assert connection._transport is not None
    accepted = connection._transport.get_extra_info("socket")
    sizes = [accepted.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
    writer.close()
    await listener.stop(1)
    return sizes[0], sizes[1]


def test_the_kernels_buffers_have_the_sizes_that_are_set() -> None:
    small = asyncio.run(buffers(ConnectionLimits(send_buffer_bytes=20_000, receive_buffer_bytes=30_000)))
    # Linux doubles what it is asked for, to have room for its own notes.
    assert small in ((20_000, 30_000), (40_000, 60_000))
    left_alone = asyncio.run(buffers(ConnectionLimits()))
    assert left_alone[0] > small[0]
    assert left_alone[1] > small[1]


def test_raised_limits_let_in_who_waits() -> None:
    async def check() -> None:
        listener = Listener("PLAINTEXT", "127.0.0.1", 0, ConnectionLimits())
        await listener.bind()
        listener.start(lambda _: Session())
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(REQUEST)
        assert await reader.readexactly(1) == b"x"
        listener.limit(ConnectionLimits(connections_max=1))
        late_reader, late_writer = await asyncio.open_connection("127.0.0.1", listener.port)
        late_writer.write(REQUEST)
        # A few turns of the loop in which the newcomer would have been served.
        for _ in range(5):
            writer.write(REQUEST)
            assert await reader.readexactly(1) == b"x"
        assert listener.connections == 1
        listener.limit(ConnectionLimits(connections_max=2))
        assert await asyncio.wait_for(late_reader.readexactly(1), 30) == b"x"
        writer.close()
        late_writer.close()
        await listener.stop(1)

    asyncio.run(check())
