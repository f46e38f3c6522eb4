"""A very small HTTP server for a node's metrics and health. It serves GET and HEAD, nothing else.

Requests are limited in size and time, connections in number, and bodies are not read. A response that takes work is
produced bit by bit: its generator runs for a few milliseconds at a time, so that a broker's clients hardly notice a
scrape of ten thousand partitions. Only one such response is produced at a time, however many are requested; those that
take no more than the first slice don't wait.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Generator, Mapping
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
HANDSHAKE_TIMEOUT_S = 5.0

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
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._labour = asyncio.Lock()

    async def start(self) -> None:
        """Bind the port (0 picks a free one, then found in `port`) and serve; raises OSError."""
        timeout_s = None if self._tls is None else HANDSHAKE_TIMEOUT_S
        self._server = await asyncio.start_server(
            self._connected,
            self.host or None,
            self.port,
            limit=REQUEST_BYTES_MAX,
            ssl=self._tls,
            ssl_handshake_timeout=timeout_s,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            timeout_s = REQUEST_S_MAX
            while await self._serve_one(reader, writer, timeout_s):
                timeout_s = IDLE_S_MAX
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            logger.debug("a connection for metrics ended early")
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout_s: float) -> bool:
        """Serve one request; returns whether another may follow."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), timeout_s)
        except asyncio.LimitOverrunError:
            await _send(writer, HttpAnswer(b"the request is too long\n", 431), has_body=True, keep=False)
            return False
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
        async with self._labour:
            while answer is None:
                await asyncio.sleep(0)
                answer = _slice(work)
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
