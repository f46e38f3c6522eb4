"""Connections on a listener that requires sign-in: what is served before it, and for how long after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.api.context import Client
from penstock.api.security.sign_in_session import SignInSession
from penstock.core.security.sasl import Identity
from penstock.model.errors import ProtocolError
from penstock.wire.apis import ApiKey
from penstock.wire.codec import encode
from penstock.wire.frame import RequestHeader, encode_request
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from penstock.wire.primitives import MalformedMessage, unsigned_varint

SERVED = [b"served"]
LIFETIME_MS = 60_000


class World:
    """A session whose client signs in with any message."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, token_id: str | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.passed_s = 0.0
        self.usable = True
        identity = Identity("User:alice", token_id is not None, token_id=token_id)
        step = SimpleNamespace(identity=identity, answer=b"")
        sign_in: Any = SimpleNamespace(
            settings=SimpleNamespace(mechanisms=("PLAIN",), failure_delay_ms=0),
            begin=lambda _: SimpleNamespace(step=lambda _: step),
            prepare=self._prepare,
            lifetime_ms=lambda _: LIFETIME_MS,
            is_usable=lambda _: self.usable,
        )
        inner: Any = SimpleNamespace(answer=lambda _: SERVED, client=Client(("127.0.0.1", 1), ""))
        self.session = SignInSession(inner, sign_in, lambda *_: None)
        now = self.loop.time()
        clock = SimpleNamespace(time=lambda: now + self.passed_s, create_task=self.loop.create_task)
        monkeypatch.setattr(self.session, "_loop", cast("asyncio.AbstractEventLoop", clock), raising=True)

    async def _prepare(self, *_: object) -> None:
        return

    async def ask(self, key: ApiKey, version: int, request: Any, more: bytes = b"") -> Any:
        body = encode(request, version)
        if more:
            assert body.endswith(b"\0")
            body = body[:-1] + more
        frame = b"".join(encode_request(RequestHeader(key, version, 1, "x"), [body]))[4:]
        answer = self.session.answer(bytearray(frame))
        return await answer if asyncio.isfuture(answer) else answer

    async def sign_in(self) -> None:
        await self.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))
        await self.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(b"secret"))

    async def read(self) -> Any:
        return await self.ask(ApiKey.METADATA, 12, MetadataRequest())


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def played(story: Callable[[World], Coroutine[Any, Any, None]], token_id: str | None = None) -> None:
        async def run() -> None:
            await story(World(monkeypatch, token_id))

        asyncio.run(run())

    return played


def test_a_sign_in_that_has_expired_serves_nothing_more_until_it_is_renewed(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        with pytest.raises(ProtocolError):
            await world.read()
        await world.sign_in()
        world.passed_s = LIFETIME_MS / 1000 - 1
        assert await world.read() == SERVED
        await world.sign_in()
        world.passed_s = 2 * LIFETIME_MS / 1000 - 2
        assert await world.read() == SERVED
        world.passed_s += 2
        with pytest.raises(ProtocolError, match="expired"):
            await world.read()

    play(story)


def test_a_connection_ends_with_its_delegation_token(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        await world.sign_in()
        assert await world.read() == SERVED
        world.usable = False
        with pytest.raises(ProtocolError, match="expired or removed"):
            await world.read()

    play(story, "token")


def test_many_tagged_fields_are_refused_before_the_sign_in(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        await world.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))
        tagged = unsigned_varint(100_000) + b"\x05\x00" * 100_000
        with pytest.raises(MalformedMessage):
            await world.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(b""), tagged)
        await world.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(b""), b"\x01\x05\x00")
        assert await world.read() == SERVED

    play(story)
