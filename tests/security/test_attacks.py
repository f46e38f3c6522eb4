"""What an attacker without a password tries: nothing is answered, and no other client notices."""

from __future__ import annotations

import socket
import ssl
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Producer

from penstock.core.security.scram import SHA_256, ScramClient
from penstock.wire.apis import ApiKey, response_class, response_header_version
from penstock.wire.codec import decoder, encoder
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.secure_cluster import ADMIN, PASSWORD, SecureCluster

TIMEOUT_S = 20.0
# Longer than a handshake may take, by far.
PATIENCE_S = 90.0


class Attacker:
    """A plain connection to the listener that wants a sign-in."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected

    def send(self, key: ApiKey, version: int, message: object) -> None:
        body: list[bytes | bytearray | memoryview] = []
        encoder(type(message), version)(message, body)
        self.socket.sendall(b"".join(encode_request(RequestHeader(key, version, 7, "attacker"), body)))

    def ask(self, key: ApiKey, version: int, message: object) -> object | None:
        """The answer; None when the connection was closed instead."""
        self.send(key, version, message)
        frame = self.receive()
        if frame is None:
            return None
        _, position = decode_response_header(frame, response_header_version(key, version))
        return decoder(response_class(key), version)(frame, position)[0]

    def receive(self) -> bytes | None:
        size = self._read(4)
        return self._read(struct.unpack(">i", size)[0]) if size is not None else None

    def _read(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except ConnectionError:
                return None
            if not piece:
                return None
            data += piece
        return data


@contextmanager
def attacker(cluster: SecureCluster) -> Iterator[Attacker]:
    host, _, port = cluster.servers("SASL_PLAINTEXT").rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connected:
        yield Attacker(connected)


def still_serves(cluster: SecureCluster) -> None:
    producer = Producer(cluster.librdkafka())
    producer.produce(f"t-{uuid.uuid4().hex}", b"x")
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.parametrize(
    ("key", "version", "message"),
    [
        (ApiKey.METADATA, 12, MetadataRequest(None)),
        (ApiKey.FETCH, 12, FetchRequest()),
        (ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(b"\0admin\0guess")),
    ],
)
def test_nothing_is_answered_before_signing_in(
    secured: SecureCluster, key: ApiKey, version: int, message: object
) -> None:
    with attacker(secured) as connection:
        assert connection.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("a", "1")) is not None
        assert connection.ask(key, version, message) is None


def test_other_requests_during_a_sign_in_close_the_connection(secured: SecureCluster) -> None:
    with attacker(secured) as connection:
        connection.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("SCRAM-SHA-256"))
        assert connection.ask(ApiKey.METADATA, 12, MetadataRequest(None)) is None


def test_a_large_frame_before_signing_in_is_refused_at_once(secured: SecureCluster) -> None:
    with attacker(secured) as connection:
        connection.socket.sendall(struct.pack(">i", 600 * 1024))
        assert connection.receive() is None
    still_serves(secured)


def test_a_recorded_sign_in_cannot_be_replayed(secured: SecureCluster) -> None:
    client = ScramClient(SHA_256, ADMIN, PASSWORD, "nonce")
    with attacker(secured) as honest:
        honest.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(SHA_256.name))
        first = honest.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(client.first()))
        recorded = client.final(bytes(first.auth_bytes))  # type: ignore[union-attr, attr-defined]
        assert honest.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(recorded)).error_code == 0  # type: ignore[union-attr, attr-defined]
        assert honest.ask(ApiKey.METADATA, 12, MetadataRequest(None)) is not None
    with attacker(secured) as replaying:
        replaying.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(SHA_256.name))
        replaying.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(client.first()))
        answer = replaying.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(recorded))
        assert answer.error_code == 58  # type: ignore[union-attr, attr-defined]
        assert replaying.receive() is None


def test_existing_users_cannot_be_discovered(secured: SecureCluster) -> None:
    answers = []
    for user in (ADMIN, "nobody"):
        client = ScramClient(SHA_256, user, "guess", "nonce")
        with attacker(secured) as connection:
            connection.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(SHA_256.name))
            first = connection.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(client.first()))
            proof = client.final(bytes(first.auth_bytes))  # type: ignore[union-attr, attr-defined]
            last = connection.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(proof))
            answers.append((last.error_code, last.error_message))  # type: ignore[union-attr, attr-defined]
    assert answers[0] == answers[1]


@pytest.mark.slow
def test_half_open_and_slow_handshakes_keep_no_client_out_and_end(secured: SecureCluster) -> None:
    host, _, port = secured.servers("SASL_SSL").rpartition(":")
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    with ExitStack() as stack:
        # A third sends all of the first message and nothing more, the others send it byte by byte.
        opened = [stack.enter_context(socket.create_connection((host, int(port)), TIMEOUT_S)) for _ in range(1_200)]
        unsaid = {one: b"" if number % 3 == 0 else hello[1:] for number, one in enumerate(opened)}
        for one, rest in unsaid.items():
            one.sendall(hello[: len(hello) - len(rest)])
        still_serves(secured)
        deadline = time.monotonic() + PATIENCE_S
        while unsaid:
            assert time.monotonic() < deadline, f"{len(unsaid)} are still there"
            unsaid = {one: rest[1:] for one, rest in unsaid.items() if goes_on(one, rest[:1])}
            time.sleep(0.1)
        still_serves(secured)


def goes_on(connected: socket.socket, said: bytes) -> bool:
    """Whether a connection is still open, on which something is said if anything is left."""
    connected.setblocking(False)
    try:
        if said:
            connected.send(said)
        return connected.recv(65_536) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
