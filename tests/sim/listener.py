"""A listener on the network in memory."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from penstock.server.connection import SCRATCH_BYTES, Connection, RequestSession
from penstock.server.limits import ConnectionLimits
from sim.network import Host, StreamEnd
from sim.scheduler import SimLoop

WATCH_INTERVAL_S = 1.0


class SimListener:
    """What `server.listener.Listener` is to real sockets; it runs the same connections."""

    def __init__(self, host: Host, name: str, address: str, port: int, limits: ConnectionLimits) -> None:
        self.name = name
        self.host = address
        self.port = port
        self.refused = 0
        self.on_handshake_failure: Callable[[str, str], None] | None = None
        self.loop: SimLoop
        self._machine = host
        self._limits = limits
        self._scratch = bytearray(SCRATCH_BYTES)
        self._make_session: Callable[[tuple[str, int]], RequestSession] | None = None
        self._connections: dict[Connection, None] = {}
        self._watch: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def bind(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        if self.port == 0:
            self._machine.next_port += 1
            self.port = self._machine.next_port
        if self.port in self._machine.listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")

    def start(self, make_session: Callable[[tuple[str, int]], RequestSession]) -> None:
        self._make_session = make_session
        self._machine.listeners[self.port] = self
        self._watch = self.loop.create_task(self._watch_deadlines())

    def limit(self, limits: ConnectionLimits) -> None:
        self._limits = limits

    async def stop(self, drain_s: float) -> None:
        self._machine.listeners.pop(self.port, None)
        if self._watch is not None:
            self._watch.cancel()
        draining = [asyncio.ensure_future(connection.drain_and_close()) for connection in self._connections]
        if draining:
            await asyncio.wait(draining, timeout=drain_s)
        for connection in list(self._connections):
            connection.abort()
        for task in draining:
            task.cancel()

    def accept(self, end: StreamEnd) -> None:
        """A stream was opened to this listener."""
        assert self._make_session is not None
        peer: tuple[str, int] = end.get_extra_info("peername")
        connection = Connection(self._make_session(peer), self._limits, self.loop, peer, self._scratch, self._closed)
        self._connections[connection] = None
        connection.connection_made(end)
        end.open(connection)

    def _closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    async def _watch_deadlines(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            now = self.loop.time()
            for connection in list(self._connections):
                if connection.overdue(now) is not None:
                    connection.abort()
