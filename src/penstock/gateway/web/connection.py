"""A connection of HTTP/1.1: uvicorn's, with deadlines, and deaf to upgrades other than to WebSocket.

Theory of operation. What comes in is in one of four states. WAITING: nothing of the next request has come. HEAD: its
first byte has. BODY: its head is complete. LEAVING: the connection was given up, a last answer is on its way, and
whatever still comes is dropped. `check_deadlines` is called for every connection a few times a second, and compares
how long the present state lasts with what it may last; so requests cost no timers. Time in which the gateway itself
does not read does not count.

A peer that does not read is noticed by what leaves the transport's buffer while it is too full to be written to.

An upgrade that is not served (Java's HttpClient and `curl --http2` ask for h2c with every request) must be ignored, and
the request served as HTTP/1.1. The parser cannot be told: it takes what follows the head for another protocol. So the
head is read once more by a fresh parser, without the upgrade.
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

from penstock.gateway.web.connection_policy import ConnectionPolicy, SlowReader
from penstock.gateway.web.limits import Limits
from penstock.gateway.web.problem import Problem
from penstock.gateway.web.socket_connection import SocketConnection

log = logging.getLogger(__name__)

# How long the peer may take to fetch the last answer of a connection that was given up.
LINGER_S = 2.0
# Connections that are told that there are too many, at a time; further ones are closed without a word.
LEAVING_MAX = 200
# Headers that belong to the upgrade that is ignored.
UPGRADING = (b"upgrade", b"http2-settings")
BODY_HEADERS = (b"content-length", b"transfer-encoding")


class Reading(Enum):
    """What of a request is being read."""

    WAITING = 1
    HEAD = 2
    BODY = 3
    LEAVING = 4


class Connection(HttpToolsProtocol):
    """A connection that answers in JSON even what is no HTTP. `policy` is that of its gateway."""

    policy = ConnectionPolicy()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._reading = Reading.WAITING
        self._since = 0.0
        self._body_bytes = 0
        # Bytes in a row that were neither body nor the end of a head: a head, trailers, a chunk's extension.
        self._overhead_bytes = 0
        self._ignores_upgrade = False
        self._caller: str | None = None
        self._reader = SlowReader(self.policy.limits)
        # Who has just connected has something to say.
        self._waits_s = self.policy.limits.head_timeout_s

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has connected; it may be one too many."""
        super().connection_made(transport)
        self._since = self.loop.time()
        caller = self.policy.caller(self.client)
        problem = self.policy.places.refusal(caller)
        if problem is None:
            self.policy.places.take(caller)
            self._caller = caller
        elif self.policy.leaving < LEAVING_MAX:
            self.refuse(problem)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        if self._caller is not None:
            self.policy.places.give_back(self._caller)
        if self._reading is Reading.LEAVING:
            self.policy.leaving -= 1
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        if self._reading is Reading.LEAVING:
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
                self.refuse(Problem(431, 43101, why, "send fewer or shorter headers"))

    def send_400_response(self, msg: str) -> None:
        """Say that a request cannot be read."""
        self.refuse(Problem(400, 40000, msg, "send a valid HTTP/1.1 request"))

    def refuse(self, problem: Problem) -> None:
        """Say why, and end the connection: nobody knows where the next request begins."""
        if self._reading is Reading.LEAVING or self.transport.is_closing():
            return
        cycle, others = self.cycle, bool(self.pipeline)
        # An answer that has begun, or that this very request has had, can no longer be another one.
        is_told = cycle is not None and cycle.response_started
        is_told = is_told and (self._reading is Reading.BODY or not cycle.response_complete)
        self._reading, self._since = Reading.LEAVING, self.loop.time()
        self.policy.leaving += 1
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
            # Closing with bytes unread would reset the connection, and the peer might never see the answer.
            self.flow.resume_reading()
            self.transport.write_eof()

    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def check_deadlines(self, now: float) -> None:
        """Give the connection up if its peer takes too long."""
        limits, waited_s = self.policy.limits, now - self._since
        if self._reading is Reading.LEAVING:
            if waited_s > LINGER_S:
                self.transport.abort()
        elif self._reader.is_stuck(now, self.transport):
            log.warning("%s does not read its answer: its connection is closed", self.client)
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
        elif waited_s > self._waits_s:
            self.transport.close()

    def pause_writing(self) -> None:
        """The peer is slower than the answer."""
        self._reader.full(self.loop.time(), self.transport.get_write_buffer_size())
        super().pause_writing()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._reader.drained()
        super().resume_writing()

    # What the parser has found.

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._reading, self._since = Reading.HEAD, self.loop.time()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; what comes after the body would be taken for one of the head, and nothing here needs it."""
        if self._reading is Reading.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The end of a head."""
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
        """A part of a body."""
        self._overhead_bytes = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The end of a request."""
        if self._ignores_upgrade:
            return
        self._reading, self._since = Reading.WAITING, self.loop.time()
        self._overhead_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The end of an answer."""
        self._answered()
        super().on_response_complete()

    def _answered(self) -> None:
        self._waits_s = self.policy.limits.idle_timeout_s
        if self._reading is Reading.WAITING:
            self._since = self.loop.time()

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Read the head once more, as if it had not asked for another protocol, and what follows it."""
        self._ignores_upgrade = False
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.refuse(Problem(405, 405, "CONNECT is not served here: this is no proxy", "call it directly"))
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
        """Leave the connection to a WebSocket, and with it the caller's place."""
        caller, self._caller = self._caller, None
        super().handle_websocket_upgrade()
        socket = self.transport.get_protocol()
        assert isinstance(socket, SocketConnection)
        socket.take_over(self.policy, caller)


def plain_protocol(of: ConnectionPolicy) -> type[Connection]:
    """Connections of one gateway."""

    class BoundConnection(Connection):
        """A connection of one gateway."""

        policy = of

    return BoundConnection


def too_slow(part: str, limits: Limits) -> Problem:
    """A request came too slowly."""
    why = f"the {part} of the request did not come within {limits.named(f'{part}_timeout_s')}"
    return Problem(408, 40801, why, "send it faster")


def rendered(problem: Problem, headers: bytes = b"") -> tuple[bytes, bytes]:
    """The head of an answer, without the body's length, and its body."""
    body = json.dumps(problem.as_json()).encode()
    phrase = HTTPStatus(problem.status).phrase.encode()
    for name, value in problem.headers.items():
        headers += b"%b: %b\r\n" % (name.lower().encode(), value.encode("latin-1", "replace"))
    return b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\n%b" % (problem.status, phrase, headers), body
