"""Tokens of an identity provider whose keys are fetched by HTTP: clients that nobody here wrote bring them."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from support.secure_cluster import SecureCluster

ISSUER, AUDIENCE = "https://identity.example", "penstock"


class IdentityProvider:
    """Signs tokens, and publishes its keys as JWKS on a port of this machine."""

    def __init__(self) -> None:
        self._keys: dict[str, rsa.RSAPrivateKey] = {}
        self.new_key()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps({"keys": [provider._public(key_id) for key_id in provider._keys]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"

    def new_key(self) -> None:
        """From now on tokens are signed with another key, and the earlier ones are no longer published."""
        self._keys = {uuid.uuid4().hex: rsa.generate_private_key(65537, 2048)}

    def _public(self, key_id: str) -> dict[str, str]:
        document: dict[str, str] = json.loads(RSAAlgorithm.to_jwk(self._keys[key_id].public_key()))
        return {**document, "kid": key_id, "use": "sig", "alg": "RS256"}

    def token(self, user: str, seconds: float = 3600, **claims: Any) -> str:
        """A token for a user; `claims` replace those that it would have."""
        key_id, key = next(iter(self._keys.items()))
        now = int(time.time())
        usual = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + int(seconds)}
        return jwt.encode({**usual, **claims}, key, algorithm="RS256", headers={"kid": key_id})

    def close(self) -> None:
        """Stop publishing."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    found = IdentityProvider()
    yield found
    found.close()


@pytest.fixture(scope="module")
def trusting(provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """A node that believes the provider."""
    settings = {
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": provider.url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.clock.skew.seconds": "1",
        "connection.failed.authentication.delay.ms": "10",
    }
    with SecureCluster(tmp_path_factory.mktemp("trusting"), settings=settings) as cluster:
        yield cluster


def bearing(cluster: SecureCluster, token: str) -> dict[str, Any]:
    """The settings of a librdkafka client that brings a token."""
    expires = jwt.decode(token, options={"verify_signature": False})["exp"]
    return {
        "bootstrap.servers": cluster.servers(),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.ca_path),
        "sasl.mechanism": "OAUTHBEARER",
        # librdkafka refuses to send a token that has expired, so it is told that this one has not.
        "oauth_cb": lambda _: (token, max(expires, time.time() + 60)),
    }


def test_confluent_kafka_brings_a_token(trusting: SecureCluster, provider: IdentityProvider) -> None:
    settings = bearing(trusting, provider.token("alice"))
    topic = f"t-{uuid.uuid4().hex}"
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    assert producer.flush(20) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"hello"
    finally:
        consumer.close()


def test_aiokafka_brings_a_token(trusting: SecureCluster, provider: IdentityProvider) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return provider.token("bob")

    async def send() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=trusting.servers(),
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=str(trusting.ca_path)),
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        )
        await producer.start()
        try:
            found: int = (await producer.send_and_wait("from-aiokafka", b"hello")).offset
            return found
        finally:
            await producer.stop()

    assert asyncio.run(send()) >= 0


def refused(settings: dict[str, Any]) -> bool:
    """Whether the broker refused the sign-in."""
    heard: list[KafkaError] = []
    admin = AdminClient({**settings, "error_cb": heard.append, "log_level": "0"})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not any(error.code() == KafkaError._AUTHENTICATION for error in heard):
        admin.poll(0.1)
    return any(error.code() == KafkaError._AUTHENTICATION for error in heard)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": int(time.time()) - 60},
        {"aud": "somebody-else"},
        {"iss": "https://impostor.example"},
        {"nbf": int(time.time()) + 3600},
    ],
    ids=["expired", "audience", "issuer", "not yet"],
)
def test_a_token_that_does_not_hold_is_refused(
    trusting: SecureCluster, provider: IdentityProvider, claims: dict[str, Any]
) -> None:
    assert refused(bearing(trusting, provider.token("alice", **claims)))


def test_a_token_of_another_key_is_refused(trusting: SecureCluster) -> None:
    impostor = IdentityProvider()
    try:
        assert refused(bearing(trusting, impostor.token("alice")))
    finally:
        impostor.close()


def test_a_new_key_is_found_without_a_restart(trusting: SecureCluster, provider: IdentityProvider) -> None:
    before = provider.token("alice")
    provider.new_key()
    admin = AdminClient(bearing(trusting, provider.token("alice")))
    # The first token of an unknown key makes the broker ask for the keys; the client comes again by itself.
    assert admin.list_topics(timeout=30).topics is not None
    assert refused(bearing(trusting, before))
