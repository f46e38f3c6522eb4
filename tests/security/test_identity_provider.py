"""Tokens of an identity provider whose keys are fetched by HTTP: third-party clients send them."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from penstock.client.connection import Connection
from penstock.client.failures import AuthenticationFailed
from penstock.client.settings import read_settings
from penstock.wire.messages.metadata import MetadataRequest
from support import identity_provider
from support.identity_provider import IdentityProvider
from support.secure_cluster import SecureCluster, sign_in_refusal


@pytest.fixture(scope="module")
def trusting(provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """A node that believes the provider."""
    with SecureCluster(tmp_path_factory.mktemp("trusting"), settings=identity_provider.trusting(provider)) as cluster:
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


def test_kafka_python_brings_a_token(trusting: SecureCluster, provider: IdentityProvider) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from kafka import KafkaProducer
        from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

    class Provider(KafkaPythonTokens):  # type: ignore[misc]
        def token(self) -> str:
            return provider.token("carol")

    producer = KafkaProducer(
        bootstrap_servers=trusting.servers(),
        security_protocol="SASL_SSL",
        ssl_cafile=str(trusting.ca_path),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    try:
        assert producer.send("from-kafka-python", b"hello").get(30).offset >= 0
    finally:
        producer.close()


@pytest.mark.parametrize("names", ["librdkafka", "java", "jaas", "file"])
def test_penstocks_own_client_fetches_its_token(
    trusting: SecureCluster, provider: IdentityProvider, names: str, tmp_path: Path
) -> None:
    client_id, secret = f"app-{names}", "its secret"
    provider.clients[client_id, secret] = provider.token(client_id)
    given = {"sasl.oauthbearer.token.endpoint.url": provider.tokens_url}
    if names == "file":
        (tmp_path / "token").write_text(provider.token(client_id) + "\n")
        given["sasl.oauthbearer.token.endpoint.url"] = (tmp_path / "token").as_uri()
    elif names == "jaas":
        given["sasl.jaas.config"] = f'OAuthBearerLoginModule required clientId="{client_id}" clientSecret="{secret}";'
    else:
        prefix = "sasl.oauthbearer." + ("client.credentials." if names == "java" else "")
        given |= {prefix + "client.id": client_id, prefix + "client.secret": secret}
    if names == "librdkafka":
        given["sasl.oauthbearer.method"] = "oidc"
    properties = tmp_path / "client.properties"
    told = {
        "bootstrap.servers": trusting.servers(),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(trusting.ca_path),
        "sasl.mechanism": "OAUTHBEARER",
        **given,
    }
    settings = read_settings(told)
    asked = provider.asked
    for _ in range(2):
        with Connection(settings.bootstrap[0], settings) as connection:
            assert connection.call(MetadataRequest(topics=[])).brokers
    assert provider.asked - asked == (0 if names == "file" else 1), "one token serves both connections"
    if names == "file":
        return
    properties.write_text("".join(f"{name}={value}\n" for name, value in told.items()))
    command = [sys.executable, "-m", "penstock", "topic", "list", "--command-config", str(properties)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_client_unknown_to_the_provider_gets_its_error(trusting: SecureCluster, provider: IdentityProvider) -> None:
    settings = read_settings(
        {
            "bootstrap.servers": trusting.servers(),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(trusting.ca_path),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": provider.tokens_url,
            "sasl.oauthbearer.client.id": "stranger",
            "sasl.oauthbearer.client.secret": "guessed",
        }
    )
    with pytest.raises(AuthenticationFailed, match="gave no token: 401"):
        Connection(settings.bootstrap[0], settings)


def refused(settings: dict[str, Any]) -> bool:
    """Whether the broker refused the sign-in."""
    error = sign_in_refusal(settings)
    return error is not None and error.code() == KafkaError._AUTHENTICATION


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
