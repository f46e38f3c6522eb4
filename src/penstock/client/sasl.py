"""The client's side of SASL: PLAIN, SCRAM (RFC 5802, RFC 7677) and OAUTHBEARER (RFC 7628).

A conversation is a generator: it yields what to send, is sent the server's reply, and returns when the server has
proved that it knows the password too. It raises AuthenticationFailed if the server does not, and ValueError if its
messages are invalid.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator

from penstock.client.failures import AuthenticationFailed
from penstock.client.settings import Credentials

OAUTHBEARER = "OAUTHBEARER"
ITERATIONS_MIN = 4096
# Kafka's maximum is a quarter of this. The broker chooses it, and computing it blocks an event loop: 40 ms at most.
ITERATIONS_MAX = 65_536
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def conversation(credentials: Credentials, nonce: str | None = None) -> Generator[bytes, bytes, None]:
    """The exchange of a mechanism; `nonce` is for tests."""
    if credentials.mechanism == "PLAIN":
        return _plain(credentials)
    if credentials.mechanism == OAUTHBEARER:
        return _bearer(credentials)
    return _scram(credentials, nonce or secrets.token_urlsafe(24))


def _plain(credentials: Credentials) -> Generator[bytes, bytes, None]:
    yield b"\0" + credentials.username.encode() + b"\0" + credentials.password.encode()


def _bearer(credentials: Credentials) -> Generator[bytes, bytes, None]:
    """The password is the token."""
    refused = yield f"n,,\x01auth=Bearer {credentials.password}\x01\x01".encode()
    if refused:
        # The broker ends the exchange with an error after this.
        yield b"\x01"


def _scram(credentials: Credentials, nonce: str) -> Generator[bytes, bytes, None]:
    name = _HASHES[credentials.mechanism]
    user = credentials.username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={user},r={nonce}"
    server_first = yield f"n,,{first_bare}".encode()
    fields = _fields(server_first)
    combined, salt, iterations = fields.get("r", ""), _binary(fields.get("s", "")), int(fields.get("i", "0"))
    if combined == nonce or not combined.startswith(nonce):
        raise AuthenticationFailed("the broker's SCRAM challenge does not match ours: it may be an impostor")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise AuthenticationFailed(
            f"the broker asks for {iterations} iterations of SCRAM, not {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    salted = hashlib.pbkdf2_hmac(name, credentials.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    without_proof = f"c=biws,r={combined}"
    message = ",".join((first_bare, server_first.decode(), without_proof)).encode()
    signature = hmac.digest(hashlib.new(name, client_key).digest(), message, name)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    server_final = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", name), message, name)
    if not hmac.compare_digest(_binary(_fields(server_final).get("v", "")), expected):
        raise AuthenticationFailed("the broker could not prove that it knows the password: it may be an impostor")


def _binary(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _fields(message: bytes) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.decode().split(",") if "=" in part)
