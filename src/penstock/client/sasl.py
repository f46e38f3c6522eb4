"""The client's side of SASL: PLAIN, SCRAM (RFC 5802, RFC 7677) and OAUTHBEARER (RFC 7628).

A conversation is a generator: it yields what to send, is sent the server's reply, and returns when the server has
proved that it knows the password too. It raises AuthenticationFailed if the server does not, or if its messages are
invalid.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator

from penstock.client.failures import AuthenticationFailed
from penstock.client.settings import OAUTHBEARER, Credentials
from penstock.client.tokens import bearer_token
from penstock.core.security.scram import MECHANISMS, ScramClient, ScramError


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
    token = credentials.password if credentials.tokens is None else bearer_token(credentials.tokens)
    refused = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if refused:
        # The broker ends the exchange with an error after this.
        yield b"\x01"


def _scram(credentials: Credentials, nonce: str) -> Generator[bytes, bytes, None]:
    client = ScramClient(MECHANISMS[credentials.mechanism], credentials.username, credentials.password, nonce)
    challenge = yield client.first()
    try:
        proof = client.final(challenge)
        client.verify((yield proof))
    except ScramError as error:
        raise AuthenticationFailed(f"the sign-in was given up: {error}") from None
