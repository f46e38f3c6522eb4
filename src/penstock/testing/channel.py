"""One plain connection to a broker, with Penstock's own wire format: a request out, its response back."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from penstock.wire.apis import APIS, response_class, response_header_version
from penstock.wire.codec import decode, encode
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.primitives import MalformedMessage

CLIENT_ID = "penstock-cli"
TIMEOUT_S = 3.0
RESPONSE_BYTES_MAX = 64 * 1024 * 1024
API_VERSIONS_VERSION = 3
# By name: asking for the classes themselves would load all of them.
KEYS = {f"{api.name}Request": key for key, api in APIS.items()}


class NoAnswer(Exception):
    """The broker could not be asked, or its answer makes no sense."""


class NotServed(NoAnswer):
    """The broker does not serve this API, or no version of it that we know."""


class Channel:
    """One connection to one broker; requests are answered in turn. Every method raises NoAnswer."""

    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S) -> None:
        self.address = f"{host}:{port}"
        self._versions: dict[int, tuple[int, int]] | None = None
        self._next_id = 0
        try:
            self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
            self._socket.settimeout(timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise NoAnswer(f"{self.address}: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def call(self, request: object, version: int | None = None) -> Any:
        """Send a request and return its response; without a version, in the newest that both sides know."""
        key = KEYS[type(request).__name__]
        if version is None:
            version = self._choose_version(key)
        self._next_id += 1
        header = RequestHeader(key, version, self._next_id, CLIENT_ID)
        try:
            self._socket.sendall(b"".join(encode_request(header, [encode(request, version)])))
            (size,) = struct.unpack(">i", self._receive(4))
            if not 0 <= size <= RESPONSE_BYTES_MAX:
                raise NoAnswer(f"{self.address} does not speak Kafka's protocol here")
            response = self._receive(size)
            _, position = decode_response_header(response, response_header_version(key, version))
            return decode(response_class(key), version, memoryview(response)[position:])
        except TimeoutError as error:
            raise NoAnswer(f"{self.address} did not answer {APIS[key].name} in time") from error
        except OSError as error:
            raise NoAnswer(f"{self.address}: {error}") from error
        except MalformedMessage as error:
            raise NoAnswer(f"{self.address}: {error}") from error

    def api_versions(self) -> ApiVersionsResponse:
        """What the broker says it serves."""
        response: ApiVersionsResponse = self.call(ApiVersionsRequest(CLIENT_ID, "0"), API_VERSIONS_VERSION)
        return response

    def _choose_version(self, key: int) -> int:
        if self._versions is None:
            served = self.api_versions().api_keys
            self._versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in served}
        api = APIS[key]
        first, last = self._versions.get(key, (0, -1))
        version = min(last, api.last_stable_version)
        if version < max(first, api.first_version):
            raise NotServed(f"{self.address} does not serve {api.name}")
        return version

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise NoAnswer(f"{self.address} closed the connection")
            data += chunk
        return bytes(data)
