"""Links between processes that a test can cut, one way or both, delay and break.

Every destination has one proxy, a TCP port that passes bytes on. Who connects to it is found out from the kernel's
tables: the socket at the far end belongs to one of the processes that the test knows. So all nodes may be told the
same address of a destination, and links are cut by source all the same. No rights are needed for this.

A cut link is one on which packets get lost: what was sent waits in the sender's buffers, connections stay open, new
ones are not answered, the end of a connection is not seen, and what waited arrives when the link is healed, if the
connection still stands. Bytes from A to B are those of requests that A makes and of answers that A gives.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
CHUNK_BYTES = 64 * 1024
CALL_TIMEOUT_S = 10.0
# Connections of processes that are none of the nodes.
STRANGER = 0


@dataclass(slots=True)
class Link:
    """The way of bytes from one node to another."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0
    passed_bytes: int = 0

    def __post_init__(self) -> None:
        self.open.set()


class Links:
    """The links of a cluster. `pids` tells which process is which node at the moment."""

    def __init__(self, pids: Callable[[], Mapping[int, int | None]]) -> None:
        self._pids = pids
        self._links: dict[tuple[int, int], Link] = {}
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], tuple[int, int]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def add(self, node_id: int, port: int) -> int:
        """A port that leads to a node's port."""
        return self._call(self._add(node_id, port))

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
            source = self._source(writer)
            self._connections[task] = source, node_id
            try:
                await self._serve(reader, writer, source, node_id, port)
            except asyncio.CancelledError:
                pass
            finally:
                self._connections.pop(task, None)
                writer.transport.abort()

        server = await asyncio.start_server(accepted, HOST, 0, limit=CHUNK_BYTES)
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: int, target: int, port: int
    ) -> None:
        there, back = self._link(source, target), self._link(target, source)
        await there.open.wait()
        await back.open.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, port, limit=CHUNK_BYTES)
        except OSError:
            return
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

    def _source(self, writer: asyncio.StreamWriter) -> int:
        peer_port = writer.get_extra_info("peername")[1]
        own_port = writer.get_extra_info("sockname")[1]
        inode = socket_inode(peer_port, own_port)
        for node_id, pid in self._pids().items():
            if inode is not None and pid is not None and owns_socket(pid, inode):
                return node_id
        return STRANGER

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


def socket_inode(local_port: int, remote_port: int) -> str | None:
    """The kernel's number of the socket that connects two ports of this machine, seen from the first one."""
    local, remote = f":{local_port:04X}", f":{remote_port:04X}"
    with open("/proc/net/tcp") as table:
        for line in table:
            columns = line.split()
            if columns[1].endswith(local) and columns[2].endswith(remote):
                return columns[9]
    return None


def owns_socket(pid: int, inode: str) -> bool:
    """Whether a process has this socket open."""
    wanted = f"socket:[{inode}]"
    directory = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(directory)
    except OSError:
        return False
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            if os.readlink(f"{directory}/{descriptor}") == wanted:
                return True
    return False
