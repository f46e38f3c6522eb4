"""A blocking connection to a broker, for commands and Spark's executors. It belongs to one thread."""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.client.address import Address
from penstock.client.closing import Closing
from penstock.client.failures import NoAnswer, Unreachable, reason_of
from penstock.client.protocol import FRAME_BYTES_MAX, SIZE_REFUSED, VERSIONS_MAX, Call, Protocol
from penstock.client.settings import ConnectionSettings
from penstock.wire.apis import Request
from penstock.wire.primitives import MalformedMessage

if TYPE_CHECKING:
    import ssl

FRAME_BYTES_FIRST = 32 * 1024 * 1024

R = TypeVar("R")
_SIZE = struct.Struct(">i")


class Connection(Closing):
    """Requests and their responses, in order. Every method may raise NoAnswer, which closes the connection unless it is
    NotServed.

    Connecting takes at most what the settings allow; a response at most `timeout_s`, or what they say.
    """

    def __init__(self, address: Address, settings: ConnectionSettings, timeout_s: float | None = None) -> None:
        self.address = address
        self._protocol = Protocol(str(address), settings.client_id, VERSIONS_MAX)
        self._waiting: deque[Call] = deque()
        self._socket: socket.socket | None = None
        context: ssl.SSLContext | None = None
        if settings.tls:
            # Imported only where it is used, so that commands without TLS start sooner.
            from penstock.client.tls import tls_context

            context = tls_context(settings)
        try:
            self._socket = socket.create_connection(address, timeout=settings.connect_timeout_s)
        except OSError as error:
            raise Unreachable(f"{address}: {reason_of(error)}") from error
        with self._failing():
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
            self._socket.settimeout(timeout_s or settings.request_timeout_s)
            introduction = self._protocol.introduction(settings.credentials)
            answer = None
            with suppress(StopIteration):
                while True:
                    answer = self.call(introduction.send(answer))

    def close(self) -> None:
        """Close the connection; does nothing if it is closed."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(self, request: Request[R]) -> R:
        """Send a request and wait for its response, which must be the only outstanding one."""
        assert not self._waiting, "a response is still outstanding"
        self.send(request)
        response: R = self.receive()
        return response

    def send(self, request: Request[object]) -> None:
        """Send a request; `receive` returns the responses in order."""
        call = Call(request)
        buffers = self._protocol.encode(call)
        with self._failing():
            self._open_socket().sendall(b"".join(buffers))
        self._waiting.append(call)

    def receive(self) -> Any:
        """The response to the oldest outstanding request; its records are views of the received bytes."""
        call = self._waiting.popleft()
        with self._failing(call):
            (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
            if not 0 < size <= FRAME_BYTES_MAX:
                raise MalformedMessage(SIZE_REFUSED.format(size))
            return self._protocol.decode(call, self._exactly(size))

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("the connection is closed")
        return self._socket

    @contextmanager
    def _failing(self, call: Call | None = None) -> Iterator[None]:
        """Turns any error into NoAnswer and closes the connection."""
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, NoAnswer) or not isinstance(error, OSError | MalformedMessage):
                raise
            from penstock.client.tls import failure_of

            kind, why = failure_of(error)
            if call is not None and isinstance(error, TimeoutError):
                why = f"it did not answer {call.name} in time"
            raise kind(f"{self.address}: {why}") from error

    def _exactly(self, size: int) -> memoryview:
        """Read exactly `size` bytes. Memory beyond a usual fetch is allocated only as bytes arrive."""
        opened = self._open_socket()
        frame = bytearray(min(size, FRAME_BYTES_FIRST))
        filled = 0
        while filled < size:
            if filled == len(frame):
                frame.extend(bytes(min(size - filled, filled)))
            with memoryview(frame) as view:
                received = opened.recv_into(view[filled:])
            if not received:
                raise ConnectionError("it closed the connection")
            filled += received
        return memoryview(frame)
