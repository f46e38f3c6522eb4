"""Sign-in on a listener: its settings, the accounts it knows, when keys are fetched, and how long sign-ins last."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.core.metadata.image import Image
from penstock.core.security import scram
from penstock.core.security.sasl import Exchange, Identity, SignInRefused
from penstock.runtime.env import SystemEnv
from penstock.runtime.security import bearer_tokens
from penstock.runtime.security.bearer_tokens import KeySet, TokenRules
from penstock.runtime.security.sign_in import (
    KEYS_REFETCH_MS,
    DelegationTokens,
    SignIn,
    SignInSettings,
    SignInUnusable,
    login_of,
)
from penstock.wire.messages.metadata_records import DelegationTokenRecord, UserScramCredentialRecord

NOW_MS = 1_000_000_000_000
PLAIN_LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="other";'
KEYS_URL = "sasl.oauthbearer.jwks.endpoint.url"


class Clock(SystemEnv):
    """A clock that is set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.at_ms = 0

    def now_ms(self) -> int:
        return NOW_MS + self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms


def read(properties: Mapping[str, str], login: str | None = None) -> SignInSettings:
    return SignInSettings.read(properties.get, lambda _: login)


def test_settings_have_kafkas_defaults() -> None:
    settings = read({"sasl.enabled.mechanisms": "SCRAM-SHA-256, PLAIN"})
    assert settings == SignInSettings(
        ("SCRAM-SHA-256", "PLAIN"), {}, None, TokenRules((), None, "sub", "scope", 30_000), 3_600_000, 0, 0
    )


def test_every_setting_of_a_listener_is_read() -> None:
    settings = read(
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
            KEYS_URL: "https://login.example/keys",
            "sasl.oauthbearer.expected.audience": "one,two",
            "sasl.oauthbearer.expected.issuer": "https://login.example",
            "sasl.oauthbearer.sub.claim.name": "name",
            "sasl.oauthbearer.scope.claim.name": "scp",
            "sasl.oauthbearer.clock.skew.seconds": "5",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": "1000",
            "connections.max.reauth.ms": "2000",
            "connection.failed.authentication.delay.ms": "300",
        },
        PLAIN_LOGIN,
    )
    assert settings.plain_users == {"alice": "secret", "bob": "other"}
    assert settings.token_keys_source == "https://login.example/keys"
    assert settings.token_rules == TokenRules(("one", "two"), "https://login.example", "name", "scp", 5_000)
    assert (settings.token_keys_refresh_ms, settings.lifetime_ms, settings.failure_delay_ms) == (1_000, 2_000, 300)


def test_passwords_are_read_for_plain_alone() -> None:
    assert read({"sasl.enabled.mechanisms": "SCRAM-SHA-512"}, PLAIN_LOGIN).plain_users == {}


@pytest.mark.parametrize(
    ("properties", "login", "advice"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, None, "Kerberos .* is not supported"),
        ({"sasl.enabled.mechanisms": "PLAIN,DIGEST-MD5"}, None, "DIGEST-MD5 is not one of"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, None, "needs " + KEYS_URL),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "no login module", "sasl.jaas.config of PLAIN cannot be read"),
    ],
)
def test_settings_that_no_client_could_sign_in_with_are_rejected(
    properties: Mapping[str, str], login: str | None, advice: str
) -> None:
    with pytest.raises(SignInUnusable, match=advice):
        read(properties, login)


def test_a_listeners_login_comes_before_the_nodes() -> None:
    properties = {"sasl.jaas.config": "node", "listener.name.outside.plain.sasl.jaas.config": "listener"}
    assert login_of(properties, "OUTSIDE", "PLAIN") == "listener"
    assert login_of(properties, "OUTSIDE", "SCRAM-SHA-256") == "node"
    assert login_of({}, "OUTSIDE", "PLAIN") is None


@dataclass
class World:
    mechanisms: str = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    properties: dict[str, str] = field(default_factory=dict)
    secret_key: str | None = "key"

    def __post_init__(self) -> None:
        self.env, self.image = Clock(), Image()
        self.tokens = DelegationTokens(self.secret_key)
        settings = read({"sasl.enabled.mechanisms": self.mechanisms, **self.properties}, PLAIN_LOGIN)
        self.sign_in = SignIn(self.env, settings, lambda: self.image, self.tokens)

    def begin(self, mechanism: str) -> Exchange:
        exchange = self.sign_in.begin(mechanism)
        assert exchange is not None
        return exchange

    def add_user(self, name: str, password: str) -> None:
        made = scram.credential_of(scram.SHA_256, password, b"salt", 8_192)
        record = UserScramCredentialRecord(
            name, scram.SHA_256.code, made.salt, made.stored_key, made.server_key, made.iterations
        )
        self.image.replay(record)

    def add_token(self, token_id: str, owner: str, expires_ms: int) -> str:
        """Returns the token's secret, as its owner has it."""
        self.image.replay(DelegationTokenRecord(owner, owner, [], NOW_MS, expires_ms, expires_ms, token_id))
        return b64encode(self.tokens.secret(token_id)).decode()

    def scram(
        self, user: str, password: str, *, mechanism: scram.Mechanism = scram.SHA_256, token: bool = False
    ) -> Identity:
        exchange = self.begin(mechanism.name)
        client = scram.ScramClient(mechanism, user, password, "nonce", token)
        step = exchange.step(client.final(exchange.step(client.first()).answer))
        client.verify(step.answer)
        assert step.identity is not None
        return step.identity


def test_only_mechanisms_that_are_enabled_start() -> None:
    world = World("PLAIN")
    assert world.begin("PLAIN").step(b"\0alice\0secret").identity == Identity("User:alice")
    for mechanism in ("SCRAM-SHA-256", "OAUTHBEARER", "unknown"):
        assert world.sign_in.begin(mechanism) is None


def test_users_and_tokens_sign_in_with_scram() -> None:
    world = World()
    world.add_user("alice", "secret")
    secret = world.add_token("token", "User:bob", NOW_MS + 5_000)
    assert world.scram("alice", "secret") == Identity("User:alice")
    for mechanism in (scram.SHA_256, scram.SHA_512):
        signed_in = Identity("User:bob", is_token=True, expires_ms=NOW_MS + 5_000, token_id="token")
        # Many clients cannot send the extension that marks a token.
        assert world.scram("token", secret, mechanism=mechanism) == signed_in
        assert world.scram("token", secret, mechanism=mechanism, token=True) == signed_in
    for user, password in (("alice", "wrong"), ("carol", "secret"), ("token", "wrong")):
        with pytest.raises(SignInRefused):
            world.scram(user, password)
    with pytest.raises(SignInRefused):
        world.scram("alice", "secret", token=True)


def test_a_token_is_good_until_it_expires_and_where_tokens_are_enabled() -> None:
    world = World()
    secret = world.add_token("token", "User:bob", NOW_MS + 5_000)
    world.env.at_ms = 5_000
    assert world.scram("token", secret).principal == "User:bob"
    world.env.at_ms = 5_001
    with pytest.raises(SignInRefused):
        world.scram("token", secret)
    without = World(secret_key=None)
    without.image = world.image
    assert (world.tokens.are_on, without.tokens.are_on) == (True, False)
    with pytest.raises(SignInRefused):
        without.scram("token", secret)


def test_a_token_that_was_removed_and_made_again_has_its_own_credential() -> None:
    world = World()
    world.add_token("token", "User:bob", NOW_MS + 5_000)
    first = world.tokens.credential(scram.SHA_256, "token", b"one")
    assert world.tokens.credential(scram.SHA_256, "token", b"two") == first
    assert world.tokens.credential(scram.SHA_512, "token", b"one") != first
    world.tokens.forget("token")
    assert world.tokens.credential(scram.SHA_256, "token", b"two").salt == b"two"
    assert world.tokens.credential(scram.SHA_512, "token", b"two").salt == b"two"


@pytest.mark.parametrize(
    ("setting_ms", "expires_in_ms", "lifetime_ms"),
    [(0, None, 0), (700, None, 700), (0, 500, 500), (700, 500, 500), (300, 500, 300), (700, 0, 1), (700, -5, 1)],
)
def test_a_sign_in_lasts_as_long_as_the_listener_and_the_identity_allow(
    setting_ms: int, expires_in_ms: int | None, lifetime_ms: int
) -> None:
    world = World(properties={"connections.max.reauth.ms": str(setting_ms)})
    expires_ms = None if expires_in_ms is None else NOW_MS + expires_in_ms
    assert world.sign_in.lifetime_ms(Identity("User:alice", expires_ms=expires_ms)) == lifetime_ms


FIRST, SECOND = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))


class Provider:
    """An identity provider whose keys are in a file."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.fetches = 0
        fetch = bearer_tokens.read_key_set

        def counted(source: str) -> KeySet:
            self.fetches += 1
            return fetch(source)

        monkeypatch.setattr(bearer_tokens, "read_key_set", counted)

    def publish(self, **keys: Any) -> None:
        documents = [
            {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": name, "use": "sig"}
            for name, key in keys.items()
        ]
        self.path.write_text(json.dumps({"keys": documents}))


def message(key: Any, name: str) -> bytes:
    claims = {"sub": "alice", "exp": NOW_MS // 1000 + 3_600}
    return f"n,,\x01auth=Bearer {jwt.encode(claims, key, 'ES256', headers={'kid': name})}\x01\x01".encode()


async def bear(world: World, text: bytes) -> Identity | None:
    exchange = world.begin("OAUTHBEARER")
    await world.sign_in.prepare(exchange, text)
    return exchange.step(text).identity


def bearer_world(path: Path, refresh_ms: int) -> World:
    properties = {KEYS_URL: str(path), "sasl.oauthbearer.jwks.endpoint.refresh.ms": str(refresh_ms)}
    return World("OAUTHBEARER", properties)


def test_unknown_keys_are_fetched_but_not_for_every_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        provider = Provider(tmp_path / "keys.json", monkeypatch)
        provider.publish(one=FIRST)
        world = bearer_world(provider.path, 10**9)
        try:
            # Those who come at the same time share a fetch.
            assert (
                await asyncio.gather(*(bear(world, message(FIRST, "one")) for _ in range(3)))
                == [Identity("User:alice", expires_ms=NOW_MS + 3_600_000)] * 3
            )
            assert provider.fetches == 1
            provider.publish(two=SECOND)
            world.env.at_ms = KEYS_REFETCH_MS - 1
            assert await bear(world, message(SECOND, "two")) is None
            assert await bear(world, message(FIRST, "one")) is not None
            assert provider.fetches == 1
            world.env.at_ms = KEYS_REFETCH_MS
            assert await bear(world, message(SECOND, "two")) is not None
            assert await bear(world, message(FIRST, "one")) is None
            assert provider.fetches == 2
        finally:
            await world.env.close()

    asyncio.run(test())


def test_known_keys_are_refreshed_meanwhile_and_stay_valid_while_the_provider_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        provider = Provider(tmp_path / "keys.json", monkeypatch)
        world = bearer_world(provider.path, 60_000)
        try:
            # Nothing is known yet.
            assert await bear(world, message(FIRST, "one")) is None
            provider.publish(one=FIRST)
            world.env.at_ms = KEYS_REFETCH_MS
            assert await bear(world, message(FIRST, "one")) is not None
            provider.path.unlink()
            for at_ms, fetches in ((69_999, 2), (70_000, 3), (70_001, 3)):
                world.env.at_ms = at_ms
                assert await bear(world, message(FIRST, "one")) is not None
                if world.sign_in._fetching is not None:
                    await world.sign_in._fetching
                assert provider.fetches == fetches
        finally:
            await world.env.close()

    asyncio.run(test())


def test_nothing_is_fetched_for_messages_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        provider = Provider(tmp_path / "keys.json", monkeypatch)
        world = bearer_world(provider.path, 60_000)
        try:
            for text in (b"n,,\x01\x01", b"n,,\x01auth=Bearer nothing\x01\x01"):
                await world.sign_in.prepare(world.begin("OAUTHBEARER"), text)
            plain = World("PLAIN").begin("PLAIN")
            await world.sign_in.prepare(plain, message(FIRST, "one"))
            assert provider.fetches == 0
        finally:
            await world.env.close()

    asyncio.run(test())
