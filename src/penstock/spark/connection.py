"""One blocking connection to a broker, over our own wire codec. Executors use it from one thread."""

from __future__ import annotations

import socket
import struct
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.spark.scram import AuthenticationFailed, conversation
from penstock.spark.security import Access, Address, tls_context
from penstock.wire.apis import APIS, ApiKey, response_class, response_header_version
from penstock.wire.codec import decoder, encoder
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from penstock.wire.primitives import Buffer, MalformedMessage

CLIENT_ID = "penstock-spark"
# Fetches may be answered with a whole batch however large it is; nothing sound is larger than this.
FRAME_BYTES_MAX = 512 * 1024 * 1024
FRAME_BYTES_FIRST = 32 * 1024 * 1024
# The newest versions that name topics by their names; older brokers get the newest they know.
VERSIONS_MAX = {ApiKey.FETCH: 12, ApiKey.LIST_OFFSETS: 9, ApiKey.METADATA: 12, ApiKey.API_VERSIONS: 3}

_SIZE = struct.Struct(">i")
_CODES = frozenset(ErrorCode)
_KEYS = {api.name + "Request": key for key, api in APIS.items()}


class Connection:
    """Requests and their answers, in order. Any OSError or MalformedMessage means: close it and open another."""

    def __init__(self, address: Address, access: Access, timeout_seconds: float) -> None:
        self.address = address
        self._next_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._socket: socket.socket = socket.create_connection(address, timeout=timeout_seconds)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if access.tls:
                self._socket = tls_context(access).wrap_socket(self._socket, server_hostname=address.host)
            self._ask_versions()
            if access.credentials is not None:
                self._authenticate(access)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Any) -> Any:
        """Send a request and wait for its answer."""
        self.send(request)
        return self.receive(request)

    def send(self, request: Any) -> None:
        """Send a request; its answer comes in turn, out of `receive`."""
        key = _api_key(type(request))
        version = self.version(key)
        body: list[Buffer] = []
        encoder(type(request), version)(request, body)
        self._next_id += 1
        self._socket.sendall(b"".join(encode_request(RequestHeader(key, version, self._next_id, CLIENT_ID), body)))

    def receive(self, request: Any) -> Any:
        """The next answer, which must be that to `request`; records in it are views of the received bytes."""
        key = _api_key(type(request))
        version = self.version(key)
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        if not 4 <= size <= FRAME_BYTES_MAX:
            raise MalformedMessage(f"{self.address} announces an answer of {size} bytes: is it a Kafka broker?")
        frame = self._exactly(size)
        _, position = decode_response_header(frame, response_header_version(key, version))
        response, _ = decoder(response_class(key), version)(frame, position)
        return response

    def version(self, key: int) -> int:
        """The version of an API that both sides speak; MalformedMessage if there is none."""
        if key == ApiKey.API_VERSIONS or key == ApiKey.SASL_HANDSHAKE:
            return {ApiKey.API_VERSIONS: 3, ApiKey.SASL_HANDSHAKE: 1}[ApiKey(key)]
        api = APIS[key]
        low, high = self._versions.get(key, (0, -1))
        version = min(high, VERSIONS_MAX.get(ApiKey(key), api.last_stable_version))
        if version < max(low, api.first_version):
            raise MalformedMessage(f"{self.address} has no version of {api.name} that this client speaks")
        return version

    def _ask_versions(self) -> None:
        response = self.call(ApiVersionsRequest("penstock-spark", "1"))
        if response.error_code:
            raise MalformedMessage(f"{self.address} refuses to say its versions: {name_of(response.error_code)}")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}

    def _authenticate(self, access: Access) -> None:
        assert access.credentials is not None
        answer = self.call(SaslHandshakeRequest(access.credentials.mechanism))
        if answer.error_code:
            raise AuthenticationFailed(
                f"{self.address} does not take {access.credentials.mechanism}, only {', '.join(answer.mechanisms)}: "
                "set kafka.sasl.mechanism to one of those"
            )
        steps = conversation(access.credentials)
        message = next(steps)
        try:
            while True:
                reply = self.call(SaslAuthenticateRequest(message))
                if reply.error_code:
                    why = reply.error_message or name_of(reply.error_code)
                    raise AuthenticationFailed(f"{self.address} refuses {access.credentials.username}: {why}")
                message = steps.send(bytes(reply.auth_bytes))
        except StopIteration:
            return

    def _exactly(self, size: int) -> memoryview:
        """So many bytes. A size beyond what fetches ask for is believed only as far as bytes arrive."""
        frame = bytearray(min(size, FRAME_BYTES_FIRST))
        filled = 0
        while filled < size:
            if filled == len(frame):
                frame.extend(bytes(min(size - filled, filled)))
            with memoryview(frame) as view:
                received = self._socket.recv_into(view[filled:])
            if not received:
                raise ConnectionError(f"{self.address} closed the connection")
            filled += received
        return memoryview(frame)


def name_of(code: int) -> str:
    """An error code's name, for people."""
    return ErrorCode(code).name if code in _CODES else f"error {code}"


def _api_key(request: type[Any]) -> int:
    return _KEYS[request.__name__]
