"""SCRAM (RFC 5802) as Kafka speaks it: SHA-256 and SHA-512, and delegation tokens signed in the same way.

Server: `ScramServer.first` takes the client's first message and answers with salt and iterations, `final` takes the
proof and answers with the server's signature. An unknown user gets a plausible salt and is refused at the end like a
wrong password, after the same work, so that no client learns which users exist.

Client: `ScramClient.first`, `final`, `verify`, for connections to other nodes.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import NamedTuple

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384
# Kafka's maximum is a quarter of this. The server chooses it, and computing it blocks an event loop: 40 ms at most.
CLIENT_ITERATIONS_MAX = 65_536
NONCE_MAX = 256
# Of a message, whose sender is still unknown. Those that are defined have four.
FIELDS_MAX = 100
# No channel binding, no authorization identity.
_GS2_HEADER = "n,,"


class ScramError(Exception):
    """The exchange has failed; the text is for the log, not for the peer."""


class Mechanism(NamedTuple):
    """One of Kafka's two kinds of SCRAM."""

    code: int
    name: str
    digest: str
    size: int


SHA_256 = Mechanism(1, "SCRAM-SHA-256", "sha256", 32)
SHA_512 = Mechanism(2, "SCRAM-SHA-512", "sha512", 64)
MECHANISMS = {mechanism.name: mechanism for mechanism in (SHA_256, SHA_512)}
MECHANISMS_BY_CODE = {mechanism.code: mechanism for mechanism in (SHA_256, SHA_512)}


class Credential(NamedTuple):
    """What a server keeps of a password: enough to check a proof, not enough to create one."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class Account(NamedTuple):
    """The principal that signs in, and its credential. With a delegation token it is the token's owner."""

    principal: str
    credential: Credential
    is_token: bool = False
    expires_ms: int | None = None


def credential_of(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> Credential:
    """The credential of a password."""
    return credential_of_salted(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def credential_of_salted(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """The same for a password that the client has salted, as in AlterUserScramCredentials."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    return Credential(salt, _hash(mechanism, client_key), _hmac(mechanism, salted, b"Server Key"), iterations)


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password, which both sides compute."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


class ScramServer:
    """The server side of one exchange. `find` looks up accounts by user name, and whether a token is meant."""

    def __init__(
        self,
        mechanism: Mechanism,
        nonce: str,
        find: Callable[[str, bool], Account | None],
        pretend: Callable[[str], Credential],
    ) -> None:
        """`pretend` returns a credential for an unknown user, with the same salt and iterations each time."""
        self._mechanism = mechanism
        self._nonce = nonce
        self._find = find
        self._pretend = pretend
        # The user that the client claims to be.
        self.user = ""
        self._account: Account | None = None
        self._credential: Credential
        self._client_first = ""
        self._server_first = ""

    def first(self, message: bytes) -> bytes:
        """The answer to the client's first message; raises ScramError."""
        text = _text(message)
        if not text.startswith((_GS2_HEADER, "n,a=", "y,")):
            raise ScramError("channel binding is not supported")
        _, authorization, bare = _split(text, 3)
        fields = _fields(bare)
        if "m" in fields:
            raise ScramError("the client asks for an extension that is not supported")
        user, nonce = _unescaped(fields.get("n", "")), fields.get("r", "")
        if not user or not nonce or len(nonce) > NONCE_MAX:
            raise ScramError("the first message names no user, or has no usable nonce")
        self.user = user
        if authorization and _unescaped(authorization.removeprefix("a=")) != user:
            raise ScramError("a user may only act as itself")
        self._account = self._find(user, fields.get("tokenauth", "").lower() == "true")
        # Also for a user that exists, so that both cases take the same time.
        pretended = self._pretend(user)
        self._credential = pretended if self._account is None else self._account.credential
        self._client_first = bare
        self._nonce = nonce + self._nonce
        salt = b64encode(self._credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        return self._server_first.encode()

    def final(self, message: bytes) -> tuple[bytes, Account]:
        """The answer to the client's proof, and its account; raises ScramError for a wrong proof."""
        without_proof, _, encoded = _text(message).rpartition(",p=")
        fields = _fields(without_proof)
        proof = _decoded(encoded)
        mechanism = self._mechanism
        if _decoded(fields.get("c", ""))[:2] not in (b"n,", b"y,"):
            raise ScramError("channel binding is not supported")
        if not hmac.compare_digest(fields.get("r", "").encode(), self._nonce.encode()):
            raise ScramError("the nonce is not the one of this exchange")
        signed = f"{self._client_first},{self._server_first},{without_proof}".encode()
        stored_key = self._credential.stored_key or bytes(mechanism.size)
        signature = _hmac(mechanism, stored_key, signed)
        if len(proof) != mechanism.size:
            raise ScramError("the proof has the wrong size")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(_hash(mechanism, client_key), stored_key)
        if self._account is None or not is_right:
            raise ScramError("the user does not exist, or the password is wrong")
        verifier = b64encode(_hmac(mechanism, self._credential.server_key, signed))
        return b"v=" + verifier, self._account


class ScramClient:
    """The client side of one exchange."""

    def __init__(self, mechanism: Mechanism, user: str, password: str, nonce: str, is_token: bool = False) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._first = f"n={_escaped(user)},r={nonce}" + (",tokenauth=true" if is_token else "")
        self._server_signature = b""

    def first(self) -> bytes:
        """The first message."""
        return (_GS2_HEADER + self._first).encode()

    def final(self, message: bytes) -> bytes:
        """The proof, after the server's first answer; raises ScramError for an invalid one."""
        text = _text(message)
        fields = _fields(text)
        nonce, salt = fields.get("r", ""), _decoded(fields.get("s", ""))
        iterations = int(fields["i"]) if fields.get("i", "").isdigit() else 0
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's challenge does not match ours: it may be an impostor")
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            limits = f"{ITERATIONS_MIN} to {CLIENT_ITERATIONS_MAX}"
            raise ScramError(f"the server asks for {iterations} iterations, not {limits}")
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, salt, iterations)
        without_proof = f"c={b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        signed = f"{self._first},{text},{without_proof}".encode()
        client_key = _hmac(mechanism, salted, b"Client Key")
        signature = _hmac(mechanism, _hash(mechanism, client_key), signed)
        self._server_signature = _hmac(mechanism, _hmac(mechanism, salted, b"Server Key"), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def verify(self, message: bytes) -> None:
        """Check that the server knows the credential as well; raises ScramError when it does not."""
        signature = _decoded(_fields(_text(message)).get("v", ""))
        if not hmac.compare_digest(signature, self._server_signature):
            raise ScramError("the server could not prove that it knows the password: it may be an impostor")


def _hmac(mechanism: Mechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.digest)


def _hash(mechanism: Mechanism, message: bytes) -> bytes:
    return hashlib.new(mechanism.digest, message).digest()


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("a message is not UTF-8") from None


def _split(text: str, parts: int) -> list[str]:
    found = text.split(",", parts - 1)
    if len(found) != parts:
        raise ScramError("a message has too few parts")
    return found


def _fields(text: str) -> dict[str, str]:
    fields = {}
    if text.count(",") >= FIELDS_MAX:
        raise ScramError(f"a message has more than {FIELDS_MAX} parts")
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if not separator or name in fields:
            raise ScramError("a message has a part that is not name=value, or one twice")
        fields[name] = value
    return fields


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise ScramError("a value is not base64") from None


def _escaped(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _unescaped(user: str) -> str:
    if user.count("=") != user.count("=2C") + user.count("=3D"):
        raise ScramError("a user name has a lone '='")
    return user.replace("=2C", ",").replace("=3D", "=")
