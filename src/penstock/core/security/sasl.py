"""The server side of SASL: each mechanism takes the peer's messages and in the end returns its identity.

A refusal reports to the peer only that it failed; `SignInRefused.reason` has the details, for the log and the audit.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from penstock.core.security.scram import ScramError, ScramServer
from penstock.model.access import USER_PREFIX

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
_SEPARATOR = "\x01"
# Of the first message with a token, which has one part for each extension. Its sender is still unknown.
BEARER_PARTS_MAX = 100


class SignInRefused(Exception):
    """The exchange has failed. `message` is for the peer, `reason` for the operators of the cluster."""

    def __init__(self, message: str, reason: str, user: str = "") -> None:
        super().__init__(reason)
        self.message = message
        self.reason = reason
        self.user = user


class Identity(NamedTuple):
    """The identity of a signed-in peer. `expires_ms` is when the sign-in expires, None for never.

    `token_id` is the delegation token that it signed in with.
    """

    principal: str
    is_token: bool = False
    expires_ms: int | None = None
    token_id: str | None = None


class SaslStep(NamedTuple):
    """The message to send, and the identity once it is known."""

    answer: bytes
    identity: Identity | None = None


class Exchange(Protocol):
    """A sign-in in progress."""

    def step(self, message: bytes) -> SaslStep:
        """Take the peer's next message; raises SignInRefused."""


class PlainExchange:
    """PLAIN (RFC 4616): a name and a password in one message. For encrypted connections only."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def step(self, message: bytes) -> SaslStep:
        """Check the only message."""
        try:
            authorization, user, password = message.decode().split("\0")
        except ValueError:
            raise SignInRefused("Authentication failed: invalid PLAIN message", "a malformed message") from None
        if authorization not in ("", user):
            raise SignInRefused(
                "Authentication failed: Client requested an authorization id that is different from username",
                "it wants to act as another user",
                user,
            )
        expected = self._passwords.get(user, "")
        # Compared even for an unknown user, so that both cases take the same time.
        is_right = hmac.compare_digest(expected.encode(), password.encode())
        if not user or not expected or not is_right:
            raise SignInRefused(
                "Authentication failed: Invalid username or password", "an unknown user or a wrong password", user
            )
        return SaslStep(b"", Identity(USER_PREFIX + user))


class ScramExchange:
    """SCRAM-SHA-256 and -512."""

    def __init__(self, name: str, server: ScramServer) -> None:
        self._name = name
        self._server = server
        self._has_begun = False

    def step(self, message: bytes) -> SaslStep:
        """The first message, then the proof."""
        try:
            if not self._has_begun:
                self._has_begun = True
                return SaslStep(self._server.first(message))
            answer, account = self._server.final(message)
        except ScramError as error:
            raise SignInRefused(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self._name,
                str(error),
                self._server.user,
            ) from None
        token_id = self._server.user if account.is_token else None
        return SaslStep(answer, Identity(account.principal, account.is_token, account.expires_ms, token_id))


class InvalidToken(Exception):
    """A bearer token that is not accepted; the text is the reason."""


class BearerExchange:
    """OAUTHBEARER (RFC 7628): a signed token. `validate` returns its identity and expiry, or raises InvalidToken."""

    def __init__(self, validate: Callable[[str], Identity]) -> None:
        self._validate = validate
        self._problem = ""

    def step(self, message: bytes) -> SaslStep:
        """The token; a client whose token was refused sends one more message to end the exchange."""
        if self._problem:
            raise SignInRefused('{"status":"invalid_token"}', self._problem)
        token = bearer_token(message)
        try:
            return SaslStep(b"", self._validate(token))
        except InvalidToken as error:
            self._problem = str(error)
            return SaslStep(json.dumps({"status": "invalid_token"}).encode())


def bearer_token(message: bytes) -> str:
    """The token of a client's first message; raises SignInRefused when there is none."""
    try:
        header, *parts = message.decode().split(_SEPARATOR, BEARER_PARTS_MAX)
    except UnicodeDecodeError:
        header, parts = "", []
    for part in parts:
        name, _, value = part.partition("=")
        scheme, _, token = value.partition(" ")
        if header.startswith("n,") and name.lower() == "auth" and scheme.lower() == "bearer" and token.strip():
            return token.strip()
    raise SignInRefused("Authentication failed: invalid OAUTHBEARER message", "a message without a bearer token")
