"""An HTTP/1.1 connection: uvicorn's, with deadlines, and ignoring upgrades other than to WebSocket.

Theory of operation. Input is in one of four states. WAITING: nothing of the next request has arrived. HEAD: its first
byte has. BODY: its head is complete. LINGERING: the connection is being closed, a last response is being sent, and
further input is dropped. `check_deadlines` is called for every connection a few times a second, comparing the time in
the current state with its limit; so requests need no timers. Time in which the gateway itself does not read is not
counted.

A peer that does not read is detected by how fast the transport's write buffer drains while it is full.

An unsupported upgrade (Java's HttpClient and `curl --http2` request h2c with every request) must be ignored, and the
request served as HTTP/1.1. The parser has no option for that: it treats input after the head as another protocol. So
the head is parsed again by a fresh parser, without the upgrade.
"""

from __future__ import annotations

import asyncio
import json
import logging
from enum import Enum
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.gateway.web.connection_policy import CERTIFICATE_KEY, ConnectionPolicy, SlowReader, SlowReaderProtocol
from penstock.gateway.web.limits import Limits
from penstock.gateway.web.problem import Problem
from penstock.gateway.web.socket_connection import SocketConnection

log = logging.getLogger(__name__)

# How long the peer may take to fetch the last response of a connection that is being closed.
LINGER_S = 2.0
# How many refused connections at a time get a 429 response; further ones are closed without a response.
LINGERING_MAX = 200
# Headers that belong to the ignored upgrade.
UPGRADING = (b"upgrade", b"http2-settings")
BODY_HEADERS = (b"content-length", b"transfer-encoding")


class Reading(Enum):
    """Which part of a request is being read."""

    WAITING = 1
    HEAD = 2
    BODY = 3
    LINGERING = 4


class HttpConnection(SlowReaderProtocol, HttpToolsProtocol):
    """A connection that answers even invalid HTTP in JSON. `policy` is its gateway's."""

    policy = ConnectionPolicy()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._reading = Reading.WAITING
        self._since = 0.0
        self._body_bytes = 0
        # Consecutive bytes that were neither body nor the end of a head: a head, trailers, a chunk extension.
        self._overhead_bytes = 0
        self._ignores_upgrade = False
        self._caller: str | None = None
        self._certificate: str | None = None
        self.reader = SlowReader(self.policy.limits)
        # A peer that has just connected is expected to send a request.
        self._wait_s_max = self.policy.limits.head_timeout_s

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or refuse it if there are too many."""
        super().connection_made(transport)
        self._certificate = self.policy.certificate_of(transport)
        self._since = self.loop.time()
        caller = self.policy.caller(self.client)
        problem = self.policy.quota.refusal(caller)
        if problem is None:
            self.policy.quota.take(caller)
            self._caller = caller
        elif self.policy.lingering < LINGERING_MAX:
            self.refuse(problem)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection holds."""
        if self._caller is not None:
            self.policy.quota.release(self._caller)
        if self._reading is Reading.LINGERING:
            self.policy.lingering -= 1
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse input."""
        if self._reading is Reading.LINGERING:
            return
        self._unset_keepalive_if_required()
        self._overhead_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._ignores_upgrade:
                self._read_without_upgrade(data[upgrade.args[0] :])
            else:
                self.handle_websocket_upgrade()
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        else:
            if self._overhead_bytes > self.policy.limits.head_bytes_max:
                why = f"the head is longer than {self.policy.limits.named('head_bytes_max')}"
                self.refuse(Problem(43101, why, "send fewer or shorter headers"))

    def send_400_response(self, msg: str) -> None:
        """Answer that a request is not valid HTTP."""
        self.refuse(Problem(40000, msg, "send a valid HTTP/1.1 request"))

    def refuse(self, problem: Problem) -> None:
        """Answer with the problem and close the connection: where the next request starts is unknown."""
        if self._reading is Reading.LINGERING or self.transport.is_closing():
            return
        cycle, others = self.cycle, bool(self.pipeline)
        # A response that has started, or that this very request already got, cannot be replaced.
        is_told = cycle is not None and cycle.response_started
        is_told = is_told and (self._reading is Reading.BODY or not cycle.response_complete)
        self._reading, self._since = Reading.LINGERING, self.loop.time()
        self.policy.lingering += 1
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if not is_told:
            head, body = rendered(problem, b"connection: close\r\n")
            self.transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        if others:
            self.transport.close()
        elif not self.transport.is_closing():
            # Closing with unread input would reset the connection, and the peer might never see the response.
            self.flow.resume_reading()
            # TLS closes both directions at once.
            if self.transport.can_write_eof():
                self.transport.write_eof()

    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def check_deadlines(self, now: float) -> None:
        """Close the connection if its peer is too slow."""
        limits, waited_s = self.policy.limits, now - self._since
        if self._reading is Reading.LINGERING:
            if waited_s > LINGER_S:
                self.transport.abort()
        elif self.reader.is_stuck(now, self.transport):
            log.warning("%s does not read its response; closing its connection", self.client)
            self.transport.abort()
        elif self.flow.read_paused:
            self._since = now
        elif self._reading is Reading.BODY:
            if waited_s > limits.body_timeout_s and self._body_bytes < waited_s * limits.bytes_per_s_min:
                self.refuse(too_slow("body", limits))
        elif self.is_busy() or self.transport.is_closing():
            return
        elif self._reading is Reading.HEAD:
            if waited_s > limits.head_timeout_s:
                self.refuse(too_slow("head", limits))
        elif waited_s > self._wait_s_max:
            self.transport.close()

    def on_message_begin(self) -> None:
        """A request starts."""
        self._reading, self._since = Reading.HEAD, self.loop.time()
        super().on_message_begin()
        if self._certificate is not None:
            self.scope[CERTIFICATE_KEY] = self._certificate  # type: ignore[literal-required]

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. Trailers are ignored, because they would be treated as headers."""
        if self._reading is Reading.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._overhead_bytes = 0
        self._reading, self._since, self._body_bytes = Reading.BODY, self.loop.time(), 0
        if self.parser.should_upgrade():
            self.scope["method"] = self.parser.get_method().decode("ascii")
            self._ignores_upgrade = not self._should_upgrade()
            if self._ignores_upgrade:
                return
        super().on_headers_complete()

    def _should_upgrade(self) -> bool:
        """WebSockets are opened by GETs without a body; on anything else the upgrade is ignored."""
        has_body = any(name in BODY_HEADERS and value != b"0" for name, value in self.headers)
        return super()._should_upgrade() and self.scope["method"] == "GET" and not has_body

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._overhead_bytes = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self._ignores_upgrade:
            return
        self._reading, self._since = Reading.WAITING, self.loop.time()
        self._overhead_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The response is complete."""
        self._answered()
        super().on_response_complete()

    def _answered(self) -> None:
        self._wait_s_max = self.policy.limits.idle_timeout_s
        if self._reading is Reading.WAITING:
            self._since = self.loop.time()

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Parse the head again without its upgrade headers, and then what follows it."""
        self._ignores_upgrade = False
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.refuse(Problem(405, "CONNECT is not supported: this is not a proxy", "connect to the target directly"))
            return
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                words = [word.strip() for word in value.split(b",")]
                value = b", ".join(word for word in words if word.lower() not in UPGRADING)
            if name not in UPGRADING and (value or name != b"connection"):
                lines.append(b"%b: %b" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join([*lines, b"", b""]) + rest)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to a WebSocket, together with its share of the caller's quota."""
        caller, self._caller = self._caller, None
        super().handle_websocket_upgrade()
        socket = self.transport.get_protocol()
        assert isinstance(socket, SocketConnection)
        socket.take_over(self.policy, caller, self._certificate)


def plain_protocol(of: ConnectionPolicy) -> type[HttpConnection]:
    """The connection class of one gateway."""

    class BoundConnection(HttpConnection):
        """A connection of one gateway."""

        policy = of

    return BoundConnection


def too_slow(part: str, limits: Limits) -> Problem:
    """The Problem for a request that arrives too slowly."""
    why = f"the {part} of the request did not arrive within {limits.named(f'{part}_timeout_s')}"
    return Problem(40801, why, "send it faster")


def rendered(problem: Problem, headers: bytes = b"") -> tuple[bytes, bytes]:
    """A response's head without the body's length, and its body."""
    body = json.dumps(problem.as_json()).encode()
    phrase = HTTPStatus(problem.status).phrase.encode()
    for name, value in problem.headers.items():
        headers += b"%b: %b\r\n" % (name.lower().encode(), value.encode("latin-1", "replace"))
    return b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\n%b" % (problem.status, phrase, headers), body
