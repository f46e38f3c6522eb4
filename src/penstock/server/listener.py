"""A listening socket: accepts within limits, enforces deadlines, shuts down without dropping accepted work."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable

from penstock.server.connection import SCRATCH_BYTES, Connection, RequestSession
from penstock.server.limits import ConnectionLimits
from penstock.server.shared_limits import SharedLimits

ACCEPT_BURST = 64
ACCEPT_PAUSE_S = 0.2
# Descriptors reserved for logs: an eighth of the limit, and at least this many.
DESCRIPTORS_RESERVED_MIN = 64
WATCH_INTERVAL_S = 1.0
# More sockets than this are not held for an address over its quota.
HELD_MAX = 1000
# A peer that does not complete its TLS handshake in this time is disconnected.
HANDSHAKE_TIMEOUT_S = 10.0

logger = logging.getLogger("penstock.server")

# Running out of these is the machine's state, not the peer's fault: accepting waits until it passes.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def address_of(host: str) -> str:
    """A peer's address as rules name it: that of an IPv4 peer of an IPv6 socket is an IPv4 address."""
    if not host.startswith("::"):
        return host
    mapped = ipaddress.IPv6Address(host.partition("%")[0]).ipv4_mapped
    return host if mapped is None else str(mapped)


class Listener:
    """Serves one address: `bind` binds it, `start` accepts peers, `stop` lets them finish."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        limits: ConnectionLimits,
        backlog: int = 1024,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """`tls` returns the context for the next connection; None for plain text."""
        self.name = name
        self.host = host
        self.port = port
        self._limits = limits
        self._make_session: Callable[[tuple[str, int]], RequestSession]
        self._backlog = backlog
        self._tls = tls
        self.on_handshake_failure: Callable[[str, str], None] | None = None
        self._socket: socket.socket | None = None
        self._scratch = bytearray(SCRATCH_BYTES)
        self._connections: set[Connection] = set()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._shared = limits.shared or SharedLimits()
        self._shared.join(self)
        # Sockets of addresses over their quota, closed when their time is over; and one that waits for its turn.
        self._held: set[socket.socket] = set()
        # Admitted, but not yet connected.
        self._admitting: set[socket.socket] = set()
        self._waiting: socket.socket | None = None
        # A peer that is connecting is among the handshakes and the connections; here it counts once.
        self._admitted = 0
        self._accepting = False
        # Out of descriptors; a timer checks for free ones.
        self._crowded = False
        self._stopping = False
        self._watch: asyncio.Task[None] | None = None
        soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._descriptors_max = soft_limit - max(DESCRIPTORS_RESERVED_MIN, soft_limit // 8)
        self.accepted = 0
        self.refused = 0
        # Connections that were not accepted at once, and those that were closed, for coming too fast.
        self.delayed = 0
        self.throttled = 0

    @property
    def connections(self) -> int:
        """How many peers are connected now."""
        return len(self._connections)

    async def bind(self) -> None:
        """Bind the port (0 picks a free one, then found in `port`) without accepting connections yet."""
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # The wildcard address listens on IPv4 and IPv6 alike where the machine has both.
        infos.sort(key=lambda info: info[0] != socket.AF_INET)
        family, kind, protocol, _, address = infos[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The receive window is announced when a peer connects, so its socket inherits the size.
        if self._limits.receive_buffer_bytes > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._limits.receive_buffer_bytes)
        try:
            listening.bind(address)
        except OSError:
            listening.close()
            raise
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        self._socket = listening

    def start(self, make_session: Callable[[tuple[str, int]], RequestSession]) -> None:
        """Begin to accept; `make_session` is called once per connection with the peer's address."""
        assert self._socket is not None, "bind first"
        self._make_session = make_session
        self._socket.listen(self._backlog)
        self._resume_accepting()
        self._watch = asyncio.get_running_loop().create_task(self._watch_deadlines())

    def limit(self, limits: ConnectionLimits) -> None:
        """Apply these limits from now on; no client is disconnected."""
        self._limits = limits
        self.resume()

    def resume(self) -> None:
        """Accept again, once it has begun: there may be room."""
        if self._watch is not None:
            self._resume_accepting()

    def longest_idle(self) -> tuple[float, Callable[[], None]] | None:
        """When the most idle connection was last active, and what closes it."""
        staying = (connection for connection in self._connections if not connection.is_closing)
        idle = min(staying, key=lambda connection: connection.last_active_at, default=None)
        return None if idle is None else (idle.last_active_at, idle.abort)

    async def stop(self, drain_s: float) -> None:
        """Accept no more connections, finish what was accepted within `drain_s`, then close the rest."""
        self._stopping = True
        self._pause_accepting()
        if self._watch is not None:
            self._watch.cancel()
        if self._socket is not None:
            self._socket.close()
        draining = [asyncio.ensure_future(connection.drain_and_close()) for connection in self._connections]
        if draining:
            await asyncio.wait(draining, timeout=drain_s)
        for connection in list(self._connections):
            connection.abort()
        for task in draining:
            task.cancel()
        for handshake in list(self._handshakes):
            handshake.cancel()
        # A task that is cancelled before its first step does not close anything.
        for held in (*self._held, *self._admitting, self._waiting):
            if held is not None:
                held.close()

    def _resume_accepting(self) -> None:
        waits = self._crowded or self._waiting is not None
        if not (self._accepting or waits or self._stopping) and self._socket is not None:
            self._accepting = True
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._accept)

    def _pause_accepting(self) -> None:
        if self._accepting and self._socket is not None:
            self._accepting = False
            asyncio.get_running_loop().remove_reader(self._socket.fileno())

    def _accept(self) -> None:
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPT_BURST):
            if self._admitted >= self._limits.connections_max or not self._shared.quotas.has_room(self.name):
                # As in Kafka, new connections wait in the backlog until another one closes.
                self._pause_accepting()
                return
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._wait_for_descriptors(loop, str(error))
                return
            peer = (address_of(str(address[0])), int(address[1]))
            delay_ms = self._shared.quotas.delay_ms(self.name, self._limits.creation_rate_max, loop.time() * 1000)
            if delay_ms:
                self._delay(loop, accepted, peer, delay_ms)
                return
            self._admit(loop, accepted, peer)
            # The system assigns the lowest free descriptor, so a high one means that few are left.
            if accepted.fileno() >= self._descriptors_max:
                self._wait_for_descriptors(loop, "nearly all open files are in use")
                return

    def _delay(
        self, loop: asyncio.AbstractEventLoop, accepted: socket.socket, peer: tuple[str, int], delay_ms: int
    ) -> None:
        """Connections come too fast: this one, and those behind it in the backlog, wait (KIP-612)."""
        self.delayed += 1
        self._pause_accepting()
        self._waiting = accepted

        def admit() -> None:
            self._waiting = None
            if not self._stopping:
                self._admit(loop, accepted, peer)
                self._resume_accepting()

        loop.call_later(delay_ms / 1000, admit)

    def _hold(self, loop: asyncio.AbstractEventLoop, accepted: socket.socket, hold_ms: int) -> None:
        """Keep an address over its quota waiting before it is disconnected, so that it does not try again at once."""

        def close() -> None:
            self._held.discard(accepted)
            accepted.close()

        self.throttled += 1
        if len(self._held) >= HELD_MAX:
            accepted.close()
            return
        self._held.add(accepted)
        loop.call_later(hold_ms / 1000, close)

    def _wait_for_descriptors(self, loop: asyncio.AbstractEventLoop, reason: str) -> None:
        """New connections stay in the backlog until there are descriptors again, so that logs never run out of them."""
        logger.warning("accepting no connections for now: %s; raise the open-file limit (ulimit -n)", reason)
        self._pause_accepting()
        self._crowded = True
        loop.call_later(ACCEPT_PAUSE_S, self._look_for_descriptors, loop)

    def _look_for_descriptors(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._stopping or self._socket is None:
            return
        try:
            probe = os.dup(self._socket.fileno())
            os.close(probe)
        except OSError:
            probe = self._descriptors_max
        if probe >= self._descriptors_max:
            loop.call_later(ACCEPT_PAUSE_S, self._look_for_descriptors, loop)
        else:
            self._crowded = False
            self._resume_accepting()

    def _admit(self, loop: asyncio.AbstractEventLoop, accepted: socket.socket, peer: tuple[str, int]) -> None:
        verdict = self._shared.quotas.admit(self.name, peer[0], loop.time() * 1000)
        if not verdict.is_admitted:
            if verdict.hold_ms:
                self._hold(loop, accepted, verdict.hold_ms)
            else:
                self.refused += 1
                accepted.close()
            return
        self._admitted += 1
        self.accepted += 1
        self._shared.make_room()
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._limits.send_buffer_bytes > 0:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.send_buffer_bytes)
        self._admitting.add(accepted)
        handshake = loop.create_task(self._connect(loop, accepted, peer))
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _connect(self, loop: asyncio.AbstractEventLoop, accepted: socket.socket, peer: tuple[str, int]) -> None:
        self._admitting.discard(accepted)
        connection = Connection(self._make_session(peer), self._limits, loop, peer, self._scratch, self._closed)
        self._connections.add(connection)
        try:
            if self._tls is None:
                await loop.connect_accepted_socket(lambda: connection, accepted)
            else:
                await loop.connect_accepted_socket(
                    lambda: connection, accepted, ssl=self._tls(), ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
                )
        except OSError as error:
            logger.info("%s:%d disconnected while connecting: %s", *peer, error)
            if isinstance(error, ssl.SSLError) and self.on_handshake_failure is not None:
                self.on_handshake_failure(peer[0], error.reason or str(error))
            accepted.close()
            self._closed(connection)

    def _closed(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self._admitted -= 1
        self._shared.left(connection.peer[0])

    async def _watch_deadlines(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            now = loop.time()
            for connection in list(self._connections):
                reason = connection.overdue(now)
                if reason is not None:
                    logger.info("closing %s:%d: %s", *connection.peer, reason)
                    connection.abort()
