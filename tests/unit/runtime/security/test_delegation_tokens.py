"""Delegation tokens: how one is found by its secret, and that what was signed in with one ends with it."""

from __future__ import annotations

import asyncio
import hmac as hmac_module
from base64 import b64encode
from typing import Any

import pytest

from penstock.api.context import Client
from penstock.api.security.sign_in_session import SignInSession
from penstock.core.metadata.image import Image
from penstock.core.security import scram
from penstock.model.errors import ProtocolError
from penstock.runtime.env import SystemEnv
from penstock.runtime.security.bearer_tokens import TokenRules
from penstock.runtime.security.sign_in import DelegationTokens, SignIn, SignInSettings
from penstock.wire.codec import decoder, encode
from penstock.wire.frame import RequestHeader, encode_request
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest

SETTINGS = SignInSettings(
    ("SCRAM-SHA-256", "SCRAM-SHA-512"), {}, None, TokenRules((), None, "sub", "scope", 0), 0, 0, 0
)
NEVER_MS = 2**62
TOKEN = DelegationTokenRecord("User:alice", "User:alice", [], 0, NEVER_MS, NEVER_MS, "t")


class Inner:
    """What serves the requests of a connection that has signed in."""

    def __init__(self) -> None:
        self.client = Client(("127.0.0.1", 1), "SASL")

    def answer(self, _: bytearray) -> str:
        return "served"


class Connection:
    """One that signs in with a token by SCRAM."""

    def __init__(self, sign_in: SignIn) -> None:
        self.inner = Inner()
        self.session = SignInSession(self.inner, sign_in, lambda *_: None)  # type: ignore[arg-type]

    async def send(self, key: int, version: int, request: Any) -> Any:
        frame = b"".join(encode_request(RequestHeader(key, version, 1, "c"), [encode(request, version)]))
        answer = self.session.answer(bytearray(frame[4:]))
        return await answer if isinstance(answer, asyncio.Future) else answer

    async def authenticate(self, message: bytes) -> bytes:
        reply = await self.send(36, 1, SaslAuthenticateRequest(message))
        response, _ = decoder(SaslAuthenticateResponse, 1)(b"".join(reply), 8)
        assert response.error_code == 0, response
        return bytes(response.auth_bytes)

    async def sign_in(self, token_id: str, secret: bytes) -> None:
        await self.send(17, 1, SaslHandshakeRequest("SCRAM-SHA-256"))
        client = scram.ScramClient(scram.SHA_256, token_id, b64encode(secret).decode(), "nonce", is_token=True)
        challenge = await self.authenticate(client.first())
        client.verify(await self.authenticate(client.final(challenge)))

    async def ask(self) -> Any:
        return await self.send(18, 3, ApiVersionsRequest("c", "1"))


@pytest.mark.parametrize("ending", ["removed", "expired"])
def test_a_token_that_ends_closes_the_connections_that_signed_in_with_it(ending: str) -> None:
    async def story() -> None:
        env, image, tokens = SystemEnv(), Image(), DelegationTokens("key")
        image.replay(TOKEN)
        image.replay(TOKEN._replace(token_id="other"))
        sign_in = SignIn(env, SETTINGS, lambda: image, tokens)
        first, second, other = (Connection(sign_in) for _ in range(3))
        for connection, token_id in ((first, "t"), (second, "t"), (other, "other")):
            await connection.sign_in(token_id, tokens.secret(token_id))
            assert connection.inner.client.principal == "User:alice"
            assert await connection.ask() == "served"
        if ending == "removed":
            image.replay(RemoveDelegationTokenRecord("t"))
        else:
            image.replay(TOKEN._replace(expiration_timestamp=env.now_ms() - 1))
        for connection in (first, second):
            with pytest.raises(ProtocolError, match="expired or removed"):
                await connection.ask()
        assert await other.ask() == "served"

    asyncio.run(story())


def test_secrets_are_computed_once_for_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[bytes] = []
    digest = hmac_module.digest

    def counted(key: bytes, message: bytes, kind: str) -> bytes:
        computed.append(message)
        return digest(key, message, kind)

    monkeypatch.setattr(hmac_module, "digest", counted)
    tokens = DelegationTokens("key")
    ids = {f"token-{number}": None for number in range(1_000)}
    tokens.learn(ids)
    secret = tokens.secret("token-7")
    for _ in range(100):
        assert tokens.find(ids, secret) == "token-7"
        assert tokens.find(ids, b"no secret") is None
        assert all(map(tokens.secret, ids))
    assert len(computed) == 1_000
    # A wrong secret is not looked for among all tokens either.
    monkeypatch.setattr(tokens, "learn", lambda _: computed.append(b"all"))
    assert tokens.find(ids, b"no secret") is None
    assert len(computed) == 1_000


def test_a_token_is_found_before_it_is_committed_and_not_after_it_was_removed() -> None:
    tokens = DelegationTokens("key")
    secret = tokens.secret("t")
    tokens.learn(["other"])
    assert tokens.find({"t": None, "other": None}, secret) == "t"
    assert tokens.find({"other": None}, secret) is None
    tokens.forget("t")
    assert tokens.find({"other": None}, secret) is None
    tokens.forget("t")
    assert tokens.find({"other": None}, tokens.secret("other")) == "other"
