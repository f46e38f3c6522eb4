"""A broker that exists only as answers: one port, TLS and a sign-in if a test wants them, and all that was asked."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Any, Self

from penstock.client.protocol import OWN_KEYS_FROM
from penstock.model.errors import ErrorCode
from penstock.wire.apis import APIS, request_class, response_header_version
from penstock.wire.codec import decode, encode
from penstock.wire.frame import decode_request_header, encode_response
from penstock.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from penstock.wire.messages.sasl_handshake import SaslHandshakeResponse
from penstock.wire.messages.table import ApiKey

FRAME_BYTES_MAX = 100 * 1024 * 1024
ITERATIONS = 4096
SALT = b"sixteen bytes ok"


class ScriptedBroker:
    """Answers by `answers[key](request)`; a key without one is not served.

    With a `mechanism`, nothing but versions and the sign-in is answered before `user` has signed in with `password`.
    """

    def __init__(
        self, context: ssl.SSLContext | None = None, mechanism: str = "", user: str = "ann", password: str = "secret"
    ) -> None:
        self.answers: dict[int, Callable[[Any], Any]] = {}
        self.asked: list[Any] = []
        self.versions: list[tuple[int, int]] = []
        self.client_ids: set[str | None] = set()
        self.connections = 0
        self.iterations = ITERATIONS
        self.is_impostor = False
        self._context = context
        self._mechanism = mechanism
        self._user = user
        self._password = password
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.hang_up()
        for thread in list(self._threads):
            thread.join(5)

    def hang_up(self) -> None:
        """End every connection."""
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error), contextlib.ExitStack() as stack:
            stack.callback(connection.close)
            if self._context is not None:
                connection = stack.enter_context(self._context.wrap_socket(connection, server_side=True))
                self._open.append(connection)
            session = Session(self)
            stream = stack.enter_context(connection.makefile("rb"))
            while size := stream.read(4):
                (length,) = struct.unpack(">i", size)
                if not 0 < length < FRAME_BYTES_MAX:
                    return
                reply = session.answer(stream.read(length))
                if reply is None:
                    return
                connection.sendall(reply)


class Session:
    """One connection: what it has asked, and how far its sign-in is."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._signed_in = not broker._mechanism
        self._challenge = ""
        self._heard: list[str] = []

    def answer(self, frame: bytes) -> bytes | None:
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        request = decode(request_class(key), version, frame[position:])
        self._broker.client_ids.add(header.client_id)
        response = self._respond(key, request)
        if response is None:
            return None
        self._broker.asked.append(request)
        self._broker.versions.append((key, version))
        buffers = encode_response(
            header.correlation_id, response_header_version(key, version), [encode(response, version)]
        )
        return b"".join(buffers)

    def _respond(self, key: int, request: Any) -> Any:
        if key == ApiKey.API_VERSIONS and key not in self._broker.answers:
            keys = [ApiKey.API_VERSIONS, *(each for each in self._broker.answers if each < OWN_KEYS_FROM)]
            if self._broker._mechanism:
                keys += [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
            rows = [ApiVersion(each, APIS[each].first_version, APIS[each].last_stable_version) for each in keys]
            return ApiVersionsResponse(api_keys=rows)
        if key == ApiKey.SASL_HANDSHAKE:
            wrong = request.mechanism != self._broker._mechanism
            return SaslHandshakeResponse(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM if wrong else 0, [self._broker._mechanism]
            )
        if key == ApiKey.SASL_AUTHENTICATE:
            data = self._authenticate(request.auth_bytes.decode())
            if data is None:
                return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "wrong name or password")
            return SaslAuthenticateResponse(auth_bytes=data)
        if not self._signed_in or key not in self._broker.answers:
            return None
        return self._broker.answers[key](request)

    def _authenticate(self, message: str) -> bytes | None:
        broker = self._broker
        if broker._mechanism == "PLAIN":
            self._signed_in = message == f"\0{broker._user}\0{broker._password}"
            return b"" if self._signed_in else None
        self._heard.append(message)
        if len(self._heard) == 1:
            first_bare = message.removeprefix("n,,")
            self._challenge = (
                f"r={first_bare.partition('r=')[2]}more,s={base64.b64encode(SALT).decode()},i={broker.iterations}"
            )
            return self._challenge.encode()
        return self._finish(message)

    def _finish(self, message: str) -> bytes | None:
        """The server's side of RFC 5802, from the password."""
        broker, name = self._broker, self._broker._mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        salted = hashlib.pbkdf2_hmac(name, broker._password.encode(), SALT, broker.iterations)
        client_key = hmac.digest(salted, b"Client Key", name)
        without_proof, _, proof = message.rpartition(",p=")
        first_bare = self._heard[0].removeprefix("n,,")
        said = f"{first_bare},{self._challenge},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(name, client_key).digest(), said, name)
        shown = bytes(left ^ right for left, right in zip(base64.b64decode(proof), signature, strict=True))
        if not broker.is_impostor and (shown != client_key or not first_bare.startswith(f"n={broker._user},")):
            return None
        self._signed_in = True
        verifier = hmac.digest(hmac.digest(salted, b"Server Key", name), said, name)
        return b"v=" + base64.b64encode(bytes(len(verifier)) if broker.is_impostor else verifier)
