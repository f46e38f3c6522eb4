"""A listening socket: the kernel's buffers, and limits that change while it listens."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from penstock.core.security.connections import ConnectionQuotas, ConnectionRules
from penstock.core.security.quotas import Windows
from penstock.server.limits import ConnectionLimits
from penstock.server.listener import Listener, address_of
from penstock.server.shared_limits import SharedLimits

REQUEST = b"\0\0\0\1x"


class Session:
    is_signed_in = True
    owner = "User:alice"

    def opened(self, connection: Any, certificate: Any) -> None: ...

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


def test_raised_limits_admit_waiting_connections() -> None:
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


async def opened(*shared: ConnectionLimits) -> list[Listener]:
    """Listeners A, B, … with these limits, accepting."""
    listeners = [Listener(chr(ord("A") + at), "127.0.0.1", 0, limits) for at, limits in enumerate(shared)]
    for listener in listeners:
        await listener.bind()
        listener.start(lambda _: Session())
    return listeners


async def connected(listener: Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(REQUEST)
    return reader, writer


def test_a_connection_that_waits_at_one_listener_is_admitted_when_another_has_room() -> None:
    async def check() -> None:
        shared = SharedLimits(ConnectionQuotas(rules=ConnectionRules(connections_max=1)))
        first, second = await opened(ConnectionLimits(shared=shared), ConnectionLimits(shared=shared))
        reader, writer = await connected(first)
        assert await reader.readexactly(1) == b"x"
        late_reader, late_writer = await connected(second)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(late_reader.readexactly(1), 0.2)
        writer.close()
        assert await asyncio.wait_for(late_reader.readexactly(1), 30) == b"x"
        late_writer.close()
        await asyncio.gather(first.stop(1), second.stop(1))

    asyncio.run(check())


def test_the_protected_listener_takes_the_place_of_who_is_idle_elsewhere() -> None:
    async def check() -> None:
        rules = ConnectionRules(connections_max=2, protected="B")
        shared = SharedLimits(ConnectionQuotas(rules=rules))
        clients, brokers = await opened(ConnectionLimits(shared=shared), ConnectionLimits(shared=shared))
        streams = []
        for _ in range(2):
            streams.append(await connected(clients))
            assert await streams[-1][0].readexactly(1) == b"x"
        streams[0][1].write(REQUEST)
        assert await streams[0][0].readexactly(1) == b"x"
        streams.append(await connected(brokers))
        assert await asyncio.wait_for(streams[2][0].readexactly(1), 30) == b"x"
        assert await asyncio.wait_for(streams[1][0].read(1), 30) == b""
        streams[0][1].write(REQUEST)
        assert await streams[0][0].readexactly(1) == b"x"
        for _, writer in streams:
            writer.close()
        await asyncio.gather(clients.stop(1), brokers.stop(1))

    asyncio.run(check())


def test_connections_that_come_too_fast_wait_and_an_address_over_its_quota_is_closed() -> None:
    async def check() -> None:
        quotas = ConnectionQuotas(Windows(2, 300), rate_of_ip=lambda _: limit)
        (listener,) = await opened(ConnectionLimits(creation_rate_max=5, shared=SharedLimits(quotas)))
        limit: float | None = None
        streams = [await connected(listener) for _ in range(6)]
        for reader, _ in streams:
            assert await asyncio.wait_for(reader.readexactly(1), 30) == b"x"
        assert listener.delayed > 0
        limit = 0.001
        listener.limit(ConnectionLimits())
        refused = await asyncio.open_connection("127.0.0.1", listener.port)
        assert await asyncio.wait_for(refused[0].read(1), 30) == b""
        assert listener.throttled == 1
        assert listener.connections == 6
        for _, writer in (*streams, refused):
            writer.close()
        await listener.stop(1)

    asyncio.run(check())


def test_who_was_admitted_just_before_the_end_is_disconnected() -> None:
    async def check() -> None:
        listener = Listener("PLAINTEXT", "127.0.0.1", 0, ConnectionLimits())
        await listener.bind()
        listener.start(lambda _: Session())
        with socket.create_connection(("127.0.0.1", listener.port), timeout=5) as client:
            listener._accept()
            await listener.stop(1)
            assert client.recv(1) == b""

    asyncio.run(check())


@pytest.mark.parametrize(
    ("shown", "named"),
    [
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3%eth0", "10.1.2.3"),
        ("10.1.2.3", "10.1.2.3"),
        ("::1", "::1"),
        ("::", "::"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_rules_see_an_ipv4_peer_by_its_ipv4_address(shown: str, named: str) -> None:
    assert address_of(shown) == named
