"""A connection that must sign in: SaslHandshake, SaslAuthenticate, then whatever the dispatcher serves.

```
  opened ──SaslHandshake──▶ exchanging ──SaslAuthenticate…──▶ signed in ──SaslHandshake──▶ exchanging again (KIP-368)
     │                          │                                 │
     └── anything but ApiVersions, or a step that fails: closed   └── a request after the sign-in has expired: closed
```

With version 0 of SaslHandshake the mechanism's messages follow as bare frames. A failed sign-in is answered after
`connection.failed.authentication.delay.ms`, and then the connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from struct import Struct
from typing import Any

from penstock.api.context import Client, Reply
from penstock.api.dispatch import ClientSession
from penstock.core.security.sasl import Exchange, Identity, SignInRefused
from penstock.model.errors import ClosingReply, ErrorCode, ProtocolError
from penstock.runtime.security.sign_in import SignIn
from penstock.wire.apis import ApiKey, request_class, response_class, response_header_version
from penstock.wire.codec import bounded_decoder, encoder
from penstock.wire.frame import RequestHeader, decode_request_header, encode_response
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from penstock.wire.messages.sasl_handshake import SaslHandshakeResponse
from penstock.wire.primitives import Buffer

HANDSHAKE_VERSIONS = (0, 1)
AUTHENTICATE_VERSIONS = (0, 2)
# The most steps of one exchange; no honest client needs more.
STEPS_MAX = 10

_SIZE = Struct(">i")

# The requests of a sign-in have neither arrays nor, so far, tagged fields.
TAGGED_FIELDS_MAX = 100

logger = logging.getLogger("penstock.security")


# Called with every sign-in: the client, the mechanism, the user, and the reason if it was refused.
Report = Callable[[Client, str, str, str | None], None]


class SignInSession:
    """One connection's session on a listener that requires sign-in; `inner` handles everything after it."""

    __slots__ = (
        "_exchange",
        "_expires_at",
        "_inner",
        "_is_bare",
        "_loop",
        "_mechanism",
        "_report",
        "_sign_in",
        "_steps",
        "_token_id",
        "is_signed_in",
    )

    def __init__(self, inner: ClientSession, sign_in: SignIn, report: Report) -> None:
        self.is_signed_in = False
        self._inner = inner
        self._sign_in = sign_in
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._is_bare = False
        self._steps = 0
        self._expires_at: float | None = None
        # The delegation token that the client has signed in with.
        self._token_id: str | None = None

    @property
    def owner(self) -> str:
        """Its user; the address of one that has not signed in."""
        return self._inner.owner

    def opened(self, connection: Any, certificate: Mapping[str, object] | None) -> None:
        """The connection is open. A certificate does not decide the principal: signing in does."""
        self._inner.opened(connection, certificate)

    def closed(self) -> None:
        """The connection has closed."""
        self._inner.closed()

    def answer(self, frame: bytearray) -> Any:
        """Serve one frame; raises ProtocolError when the connection should be closed."""
        if self._is_bare and self._exchange is not None:
            return self._later(self._bare_step(bytes(frame)))
        header, position = decode_request_header(frame)
        key = header.api_key
        if key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(header, frame, position)
        if key == ApiKey.SASL_AUTHENTICATE and self._exchange is not None:
            return self._later(self._step(header, frame, position))
        if self.is_signed_in and self._exchange is None:
            if self._expires_at is not None and self._loop.time() >= self._expires_at:
                raise ProtocolError("its sign-in has expired and was not renewed (connections.max.reauth.ms)")
            if self._token_id is not None and not self._sign_in.is_usable(self._token_id):
                raise ProtocolError("the delegation token that it signed in with has been expired or removed")
            return self._inner.answer(frame)
        if key == ApiKey.API_VERSIONS and not self.is_signed_in:
            return self._inner.answer(frame)
        raise ProtocolError(f"API {key} was called before signing in")

    def _handshake(self, header: RequestHeader, frame: bytearray, position: int) -> object:
        _check(header, HANDSHAKE_VERSIONS)
        request = _decoded(header, frame, position)
        mechanisms = list(self._sign_in.settings.mechanisms)
        self._exchange = self._sign_in.begin(request.mechanism)
        if self._exchange is None or (self.is_signed_in and request.mechanism != self._mechanism):
            self._exchange = None
            refusal = _encoded(header, SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms))
            reason = f"it requests the mechanism {request.mechanism[:40]!r}, and there are {', '.join(mechanisms)}"
            self._report(self._inner.client, request.mechanism[:40], "", reason)
            return self._later(self._end(refusal, reason))
        self._mechanism = request.mechanism
        self._is_bare = header.api_version == 0
        self._steps = 0
        return _encoded(header, SaslHandshakeResponse(0, mechanisms))

    async def _step(self, header: RequestHeader, frame: bytearray, position: int) -> Reply:
        _check(header, AUTHENTICATE_VERSIONS)
        request = _decoded(header, frame, position)
        try:
            answer, lifetime_ms = await self._resume(bytes(request.auth_bytes))
        except SignInRefused as refused:
            response = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, refused.message)
            return await self._refuse(_encoded(header, response), refused)
        return _encoded(header, SaslAuthenticateResponse(0, None, answer, lifetime_ms))

    async def _bare_step(self, message: bytes) -> Reply:
        try:
            answer, _ = await self._resume(message)
        except SignInRefused as refused:
            return await self._refuse([], refused)
        return [_SIZE.pack(len(answer)) + answer]

    async def _resume(self, message: bytes) -> tuple[bytes, int]:
        """Take the exchange one step further: the answer, and how long the sign-in lasts once it is complete."""
        exchange = self._exchange
        assert exchange is not None
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise SignInRefused("Authentication failed", "it takes too many steps")
        await self._sign_in.prepare(exchange, message)
        step = exchange.step(message)
        if step.identity is None:
            return step.answer, 0
        return step.answer, self._accept(step.identity)

    def _accept(self, identity: Identity) -> int:
        client = self._inner.client
        if self.is_signed_in and identity.principal != client.principal:
            raise SignInRefused(
                "Cannot change principals during re-authentication", f"it was {client.principal}", identity.principal
            )
        client.principal = identity.principal
        client.is_token = identity.is_token
        self._exchange = None
        self._is_bare = False
        self.is_signed_in = True
        lifetime_ms = self._sign_in.lifetime_ms(identity)
        self._expires_at = self._loop.time() + lifetime_ms / 1000 if lifetime_ms else None
        self._token_id = identity.token_id
        self._report(client, self._mechanism, identity.principal, None)
        return lifetime_ms

    async def _refuse(self, reply: Reply, refused: SignInRefused) -> Reply:
        self._report(self._inner.client, self._mechanism, refused.user, refused.reason)
        return await self._end(reply, f"sign-in by {self._mechanism} refused: {refused.reason}")

    async def _end(self, reply: Reply, reason: str) -> Reply:
        self._exchange = None
        await asyncio.sleep(self._sign_in.settings.failure_delay_ms / 1000)
        raise ClosingReply(reason, reply)

    def _later(self, work: Coroutine[object, object, Reply]) -> asyncio.Task[Reply]:
        return self._loop.create_task(work)


def _decoded(header: RequestHeader, frame: bytearray, position: int) -> Any:
    """The request: its sender has not signed in yet, so it is small or refused."""
    read = bounded_decoder(request_class(header.api_key), header.api_version)
    return read(frame, position, TAGGED_FIELDS_MAX)[0]


def _check(header: RequestHeader, versions: tuple[int, int]) -> None:
    if not versions[0] <= header.api_version <= versions[1]:
        raise ProtocolError(f"API {header.api_key} version {header.api_version} is not served here")


def _encoded(header: RequestHeader, response: Any) -> Reply:
    body: list[Buffer] = []
    encoder(response_class(header.api_key), header.api_version)(response, body)
    return encode_response(header.correlation_id, response_header_version(header.api_key, header.api_version), body)
