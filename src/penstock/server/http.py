"""A very small HTTP server for a node's metrics and health. It serves GET and HEAD, nothing else.

Requests are limited in size and time, connections in number, and bodies are not read. A connection counts from the
moment it is accepted until its socket is closed, so neither peers that never finish a TLS handshake nor those that
read nothing of a response hold more than that. Where there are too many, the address that has the most of them loses
the one that was idle longest.

A response that takes work is produced bit by bit: its generator runs for a few milliseconds at a time, so that a
broker's clients hardly notice a scrape of ten thousand partitions. Only one such response is produced at a time,
however many are requested, and after it the next one waits for a while; those that take no more than the first slice
don't wait.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from functools import partial
from http import HTTPStatus
from time import perf_counter
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_S_MAX = 5.0
IDLE_S_MAX = 120.0
# Each may hold a response of some megabytes that its peer does not read.
CONNECTIONS_MAX = 16
# How long the loop serves others between two slices of a response.
SLICE_S = 0.004
# After a response that took work the next one waits for so many times as long as that took.
REST_FACTOR = 3
HANDSHAKE_TIMEOUT_S = 5.0
BACKLOG = 100
# While there are no descriptors, and after so many connections of one turn of the loop.
ACCEPT_PAUSE_S = 0.2
ACCEPT_BURST = 16

logger = logging.getLogger("penstock.server")


class HttpRequest(NamedTuple):
    """One request. Header names are in lower case."""

    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]


class HttpAnswer(NamedTuple):
    """One response."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


# Produces a response; its yields are points where other work may get its turn.
HttpHandler = Callable[[HttpRequest], Generator[None, None, HttpAnswer]]


class _Peer:
    """A connection from the moment it is accepted; idle ones have no request that is being answered."""

    __slots__ = ("accepted", "address", "is_idle", "since", "task", "transport")

    def __init__(self, accepted: socket.socket, address: str, since: float) -> None:
        # Until the task that serves it has started, and takes care of it.
        self.accepted: socket.socket | None = accepted
        self.address = address
        self.since = since
        self.is_idle = True
        self.task: asyncio.Task[None] | None = None
        self.transport: asyncio.WriteTransport | None = None

    def disconnect(self) -> None:
        """Hang up at once."""
        assert self.task is not None
        self.task.cancel()
        if self.transport is not None:
            self.transport.abort()

    def set_idle(self, is_idle: bool) -> None:
        """A request was received whole, or answered."""
        self.is_idle = is_idle
        self.since = asyncio.get_running_loop().time()


class HttpListener:
    """Serves some paths at one address."""

    def __init__(
        self, host: str, port: int, handlers: Mapping[str, HttpHandler], tls: ssl.SSLContext | None = None
    ) -> None:
        """With `tls` it serves HTTPS."""
        self.host = host
        self.port = port
        self._handlers = handlers
        self._tls = tls
        self._listening: list[socket.socket] = []
        self._peers: set[_Peer] = set()
        self._labour = asyncio.Lock()
        # When the next response that takes work may be produced.
        self._rested_at = 0.0

    async def start(self) -> None:
        """Bind the port (0 picks a free one, then found in `port`) and serve; raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                self._listen(family, kind, protocol, (address[0], self.port, *address[2:]))
        except OSError:
            self._stop_listening()
            raise
        for listening in self._listening:
            loop.add_reader(listening.fileno(), self._accept, listening)

    def _listen(self, family: int, kind: int, protocol: int, address: tuple[object, ...]) -> None:
        try:
            listening = socket.socket(family, kind, protocol)
        except OSError:
            # The resolver knows addresses of a kind that this machine does not have.
            return
        self._listening.append(listening)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        self.port = listening.getsockname()[1]
        listening.listen(BACKLOG)
        listening.setblocking(False)

    def _stop_listening(self) -> None:
        for listening in self._listening:
            asyncio.get_running_loop().remove_reader(listening.fileno())
            listening.close()
        self._listening.clear()

    async def stop(self) -> None:
        """Close the port and every connection."""
        self._stop_listening()
        tasks = [peer.task for peer in self._peers if peer.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPT_BURST):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.warning("no connections for metrics are accepted for now: %s", error)
                loop.remove_reader(listening.fileno())
                loop.call_later(ACCEPT_PAUSE_S, self._accept_again, listening)
                return
            if not self._make_room(str(address[0])):
                accepted.close()
                continue
            accepted.setblocking(False)
            peer = _Peer(accepted, str(address[0]), loop.time())
            self._peers.add(peer)
            peer.task = loop.create_task(self._connect(accepted, peer))
            peer.task.add_done_callback(partial(self._ended, peer))

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._listening:
            asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    def _make_room(self, address: str) -> bool:
        """Whether there is room for one more, at the cost of the address that has more connections than others."""
        if len(self._peers) < CONNECTIONS_MAX:
            return True
        counts = Counter(peer.address for peer in self._peers)
        most = max(counts.values())
        if counts[address] >= most:
            return False
        idle = [peer for peer in self._peers if peer.is_idle and counts[peer.address] == most]
        evicted = min(idle, key=lambda peer: peer.since, default=None)
        if evicted is None:
            return False
        self._peers.discard(evicted)
        evicted.disconnect()
        return True

    def _ended(self, peer: _Peer, _: object) -> None:
        self._peers.discard(peer)
        if peer.accepted is not None:
            peer.accepted.close()

    async def _connect(self, accepted: socket.socket, peer: _Peer) -> None:
        peer.accepted = None
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(REQUEST_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        timeout_s = None if self._tls is None else HANDSHAKE_TIMEOUT_S
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=timeout_s
            )
            peer.transport = transport
            await self._serve(reader, asyncio.StreamWriter(transport, protocol, reader, loop), peer)
        except OSError as error:
            logger.debug("a connection for metrics ended early: %s", error)
            accepted.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: _Peer) -> None:
        try:
            timeout_s = REQUEST_S_MAX
            while await self._serve_one(reader, writer, peer, timeout_s):
                timeout_s = IDLE_S_MAX
            writer.close()
            await asyncio.wait_for(writer.wait_closed(), REQUEST_S_MAX)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            logger.debug("a connection for metrics ended early")
        finally:
            # What its peer has not read is dropped.
            writer.transport.abort()

    async def _serve_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: _Peer, timeout_s: float
    ) -> bool:
        """Serve one request; returns whether another may follow."""
        peer.set_idle(True)
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), timeout_s)
        except asyncio.LimitOverrunError:
            await _send(writer, HttpAnswer(b"the request is too long\n", 431), has_body=True, keep=False)
            return False
        peer.set_idle(False)
        method, request, keep = _parse(head)
        if request is None:
            await _send(writer, HttpAnswer(b"this is not an HTTP request\n", 400), has_body=True, keep=False)
            return False
        if method not in ("GET", "HEAD"):
            await _send(writer, HttpAnswer(b"only GET is served here\n", 405), has_body=True, keep=False)
            return False
        answer = await self._answer(request)
        await _send(writer, answer, has_body=method == "GET", keep=keep)
        return keep

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        handler = self._handlers.get(request.path)
        if handler is None:
            return HttpAnswer(f"there is nothing here; look at {', '.join(sorted(self._handlers))}\n".encode(), 404)
        try:
            return await self._made(handler(request))
        except Exception:
            logger.exception("%s could not be answered; this is a bug", request.path)
            return HttpAnswer(b"this could not be answered; the log has the reason\n", 500)

    async def _made(self, work: Generator[None, None, HttpAnswer]) -> HttpAnswer:
        """Run a handler, yielding to other work."""
        answer = _slice(work)
        if answer is not None:
            return answer
        loop = asyncio.get_running_loop()
        async with self._labour:
            await asyncio.sleep(max(0.0, self._rested_at - loop.time()))
            slices = 1
            while answer is None:
                await asyncio.sleep(0)
                answer = _slice(work)
                slices += 1
            self._rested_at = loop.time() + REST_FACTOR * slices * SLICE_S
        return answer


def _slice(work: Generator[None, None, HttpAnswer]) -> HttpAnswer | None:
    """Run a handler for one slice; its response if that was enough."""
    deadline = perf_counter() + SLICE_S
    while perf_counter() < deadline:
        try:
            next(work)
        except StopIteration as done:
            answer: HttpAnswer = done.value
            return answer
    return None


def _parse(head: bytes) -> tuple[str, HttpRequest | None, bool]:
    """A request's method, the rest of it if it is valid, and whether its connection stays open."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return "", None, False
    headers = {}
    for line in lines[1:-2]:
        name, separator, value = line.partition(":")
        if not separator:
            return "", None, False
        headers[name.strip().lower()] = value.strip()
    try:
        target = urlsplit(words[1])
        query = parse_qs(target.query, max_num_fields=32)
    except ValueError:
        return "", None, False
    # A body would be read as the next request.
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    keep = words[2] == "HTTP/1.1" and headers.get("connection", "").lower() != "close" and not has_body
    return words[0], HttpRequest(target.path, query, headers), keep


async def _send(writer: asyncio.StreamWriter, answer: HttpAnswer, *, has_body: bool, keep: bool) -> None:
    head = (
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\n"
        f"X-Content-Type-Options: nosniff\r\n"
        f"Cache-Control: no-store\r\nConnection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    )
    writer.write(head.encode("latin-1"))
    if has_body:
        writer.write(answer.body)
    await asyncio.wait_for(writer.drain(), REQUEST_S_MAX)
