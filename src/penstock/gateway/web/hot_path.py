"""A fast path for high-volume requests that bypasses the framework that serves all others.

Theory of operation. A connection is uvicorn's, with a check of the input before uvicorn sees it. A request takes the
fast path only if it is entirely plain: a POST with a complete, simple head and a known route, whose short body has
arrived completely, with nothing else in progress on the connection. The route's handler may still decline it. Every
other request goes to uvicorn unchanged, so everything that needs care (errors, pipelining, streams, upgrades) is
implemented once, there.

Clients send the same head over and over, so a connection's last head is cached together with its parsed form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from penstock.gateway.web.connection import HttpConnection, Reading
from penstock.gateway.web.connection_policy import ConnectionPolicy

HEAD_BYTES_MAX = 4096
BODY_BYTES_MAX = 64 * 1024
END = b"\r\n\r\n"
# The position of the status code in a status line.
STATUS_AT = slice(9, 12)
REQUEST_LINE = re.compile(rb"POST (/[!-~]*) HTTP/1\.1")
HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([ -~\x80-\xff]*)")
# Headers that change how a message is parsed, or what happens to its connection.
UNUSUAL = frozenset({b"transfer-encoding", b"content-encoding", b"expect", b"upgrade", b"trailer", b"te"})


@dataclass(frozen=True, slots=True)
class Head:
    """A plain request's head: the raw path, headers by lower-case name, and the body's length."""

    path: bytes
    headers: dict[bytes, bytes]
    body_length: int


class HttpReply(Protocol):
    """The sender of one response."""

    def answer(self, head: bytes, body: bytes) -> None:
        """Send the status line and headers without the body's length, and the body."""


# Takes a body: True if it will call the reply's `answer`, False if it declines the request.
HotHandler = Callable[[bytes, HttpReply], bool]
# The handler for a head; None if there is none.
HotRoutes = Callable[[Head], HotHandler | None]
# Called for every response with its status and duration in seconds.
HotObserver = Callable[[int, float], None]


def read_head(block: bytes) -> Head | None:
    """Parse a head; None if it is not a plain one."""
    line, *lines = block.split(b"\r\n")
    request = REQUEST_LINE.fullmatch(line)
    if request is None:
        return None
    headers: dict[bytes, bytes] = {}
    for each in lines:
        found = HEADER.fullmatch(each)
        if found is None:
            return None
        name = found[1].lower()
        if name in headers or name in UNUSUAL:
            return None
        headers[name] = found[2].rstrip(b" \t")
    length = headers.get(b"content-length", b"")
    if not length.isdigit() or len(length) > 6 or int(length) > BODY_BYTES_MAX:
        return None
    if headers.get(b"connection", b"keep-alive").lower() != b"keep-alive" or b"host" not in headers:
        return None
    return Head(request[1], headers, int(length))


class HotProtocol(HttpConnection):
    """A connection whose plain requests to known routes take the fast path."""

    routes: HotRoutes
    observe: HotObserver

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._answering = False
        self._stopping = False
        # Input of a hot request whose body is incomplete, or that arrived while one is being answered.
        self._held = b""
        self._block = b""
        self._handler: HotHandler | None = None
        self._body_length = 0
        self._taken_at = 0.0

    def data_received(self, data: bytes) -> None:
        """Take the fast path, or leave the input to uvicorn."""
        if self._answering:
            self._held += data
            if len(self._held) > BODY_BYTES_MAX:
                self.flow.pause_reading()
            return
        if self._held:
            data, self._held = self._held + data, b""
        is_free = self._reading is Reading.WAITING and not self.is_busy() and not self.flow.write_paused
        if not is_free or not data.startswith(b"POST ") or not self._take(data):
            super().data_received(data)

    def _take(self, data: bytes) -> bool:
        end = data.find(END, 0, HEAD_BYTES_MAX)
        if end < 0:
            return False
        block = data[:end]
        if block != self._block:
            head = read_head(block)
            # Anything that could come from a web page is checked on the regular path.
            is_plain = head is not None and self.policy.access.is_plain(head.headers)
            self._handler = self.routes(head) if head is not None and is_plain else None
            self._body_length = head.body_length if head is not None else 0
            self._block = block
        if self._handler is None:
            return False
        missing = end + len(END) + self._body_length - len(data)
        if missing > 0:
            self._held = data
            return True
        self._unset_keepalive_if_required()
        self._answering = True
        self._taken_at = perf_counter()
        if missing < 0 or not self._handler(data[end + len(END) :], self):
            self._answering = False
            return False
        return True

    def answer(self, head: bytes, body: bytes) -> None:
        """Send a response, and continue with input that arrived meanwhile."""
        self._answering = False
        self.server_state.total_requests += 1
        self.observe(int(head[STATUS_AT]), perf_counter() - self._taken_at)
        if self.transport.is_closing() or self._reading is Reading.LINGERING:
            return
        self.transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        if self._stopping:
            self.transport.close()
            return
        self._answered()
        if self._held:
            held, self._held = self._held, b""
            self.flow.resume_reading()
            self.data_received(held)

    def is_busy(self) -> bool:
        """Whether a request is being answered, on either path."""
        return self._answering or super().is_busy()

    def check_deadlines(self, now: float) -> None:
        """A body that does not arrive at once is left to uvicorn, where it has a deadline."""
        if self._held and not self._answering:
            held, self._held = self._held, b""
            super().data_received(held)
        super().check_deadlines(now)

    def shutdown(self) -> None:
        """Close the connection after the response in progress."""
        self._stopping = True
        if not self._answering:
            super().shutdown()


def hot_protocol(
    hot_routes: HotRoutes, observer: HotObserver = lambda *_: None, of: ConnectionPolicy | None = None
) -> type[HotProtocol]:
    """Connections with these routes; `observer` is called for their responses."""

    class BoundProtocol(HotProtocol):
        """A connection of one gateway."""

        policy = of or ConnectionPolicy()
        routes = staticmethod(hot_routes)
        observe = staticmethod(observer)

    return BoundProtocol
