"""Links between nodes that a test can cut, one way or both, delay and break.

Every destination has one proxy, a TCP port that passes bytes on. Nodes say who they are: the client id in the header of
the first request on a connection ends in the node's number. So all nodes may be told the same address of a destination,
and links are cut by source all the same. No rights are needed for this. Where nodes speak TLS, a proxy ends it and
begins it anew, with the nodes' own certificate.

A cut link is one on which packets get lost: what was sent waits in the sender's buffers, connections stay open, new
ones are not answered, the end of a connection is not seen, and what waited arrives when the link is healed, if the
connection still stands. Bytes from A to B are those of requests that A makes and of answers that A gives.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import struct
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.client.closing import Closing

HOST = "127.0.0.1"
CHUNK_BYTES = 64 * 1024
CALL_TIMEOUT_S = 10.0
# Size, API key, version, correlation id and the client id's length: how every request begins.
REQUEST_HEAD = struct.Struct(">ihhih")
NUMBER_AT_END = re.compile(rb"-([0-9]+)$")
CLIENT_ID_BYTES_MAX = 100
# A peer that is none of the nodes.
STRANGER = 0


@dataclass(slots=True)
class Link:
    """The way of bytes from one node to another."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0
    passed_bytes: int = 0

    def __post_init__(self) -> None:
        self.open.set()


class Tls(NamedTuple):
    """What a proxy shows to who connects, and what it trusts where it connects itself."""

    server: ssl.SSLContext
    client: ssl.SSLContext


class Links(Closing):
    """The links of a cluster."""

    def __init__(self, tls: Tls | None = None) -> None:
        self._tls = tls
        self._links: dict[tuple[int, int], Link] = {}
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], tuple[int, int]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def add(self, node_id: int, port: int) -> int:
        """A port that leads to a node's port."""
        found: int = self._call(self._add(node_id, port))
        return found

    def cut(self, source: int, target: int) -> None:
        """Nothing that a node sends reaches the other; what the other sends still arrives."""
        self._call(self._set(source, target, is_open=False))

    def cut_both(self, one: int, other: int) -> None:
        """The two nodes do not hear of each other."""
        self.cut(one, other)
        self.cut(other, one)

    def isolate(self, node_id: int, others: Iterable[int]) -> None:
        """A node and the others do not hear of each other."""
        for other in others:
            if other != node_id:
                self.cut_both(node_id, other)

    def heal(self, source: int | None = None, target: int | None = None) -> None:
        """Everything passes again: on one link, or everywhere, and without delay."""
        for one, other in list(self._links):
            if source in (None, one) and target in (None, other):
                self._call(self._set(one, other, is_open=True))

    def delay(self, source: int, target: int, seconds: float) -> None:
        """Every piece that passes takes this long, one after the other."""
        self._link(source, target).delay_s = seconds

    def reset(self, source: int, target: int) -> None:
        """Break the connections that a node has opened to another."""
        self._call(self._reset(source, target))

    def passed_bytes(self, source: int, target: int) -> int:
        """How many bytes have got from a node to another."""
        return self._link(source, target).passed_bytes

    def close(self) -> None:
        """Break everything and end."""
        if self._thread.is_alive():
            self._call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CALL_TIMEOUT_S)
            self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        done: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(CALL_TIMEOUT_S)

    def _link(self, source: int, target: int) -> Link:
        return self._links.setdefault((source, target), Link())

    async def _add(self, node_id: int, port: int) -> int:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections[task] = STRANGER, node_id
            with contextlib.suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
                head, source = await read_source(reader)
                self._connections[task] = source, node_id
                await self._serve(head, reader, writer, source, node_id, port)
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._connections.pop(task, None)

        context = self._tls.server if self._tls else None
        server = await asyncio.start_server(accepted, HOST, 0, limit=CHUNK_BYTES, ssl=context)
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    async def _serve(
        self,
        head: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: int,
        target: int,
        port: int,
    ) -> None:
        there, back = self._link(source, target), self._link(target, source)
        await there.open.wait()
        await back.open.wait()
        context = self._tls.client if self._tls else None
        far_reader, far_writer = await asyncio.open_connection(HOST, port, limit=CHUNK_BYTES, ssl=context)
        far_writer.write(head)
        pumps = [
            asyncio.create_task(_pump(reader, far_writer, there)),
            asyncio.create_task(_pump(far_reader, writer, back)),
        ]
        try:
            # Neither side uses half-closed connections: the end of one direction is the end of both.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            far_writer.transport.abort()
            with contextlib.suppress(OSError):
                await far_writer.wait_closed()

    async def _set(self, source: int, target: int, *, is_open: bool) -> None:
        link = self._link(source, target)
        if is_open:
            link.delay_s = 0.0
            link.open.set()
        else:
            link.open.clear()

    async def _reset(self, source: int, target: int) -> None:
        for task, ends in list(self._connections.items()):
            if ends == (source, target):
                task.cancel()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(CHUNK_BYTES):
            await link.open.wait()
            if link.delay_s:
                await asyncio.sleep(link.delay_s)
            link.passed_bytes += len(data)
            writer.write(data)
            await writer.drain()
    # That a connection has ended travels as a packet too.
    await link.open.wait()


async def read_source(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """What was read of a connection to find out who opened it, and the node's number."""
    head = await reader.readexactly(REQUEST_HEAD.size)
    size = min(CLIENT_ID_BYTES_MAX, REQUEST_HEAD.unpack(head)[4])
    client_id = await reader.readexactly(size) if size > 0 else b""
    number = NUMBER_AT_END.search(client_id)
    return head + client_id, int(number[1]) if number else STRANGER
