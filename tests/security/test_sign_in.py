"""Third-party clients sign in by each mechanism over TLS, and are refused as by Kafka."""

from __future__ import annotations

import asyncio
import gc
import ssl
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from support.secure_cluster import ADMIN, PASSWORD, PLAIN_USERS, SecureCluster, sign_in_refusal

with warnings.catch_warnings():
    # kafka-python loads its message definitions with functions that Python's library deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def round_trip(settings: dict[str, str]) -> None:
    """Write a record and read it back."""
    topic = f"t-{uuid.uuid4().hex}"
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    assert producer.flush(20) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        assert message.value() == b"hello"
    finally:
        consumer.close()


def refusal(settings: dict[str, str]) -> int:
    """The code of the error that librdkafka reports."""
    error = sign_in_refusal(settings)
    assert error is not None
    return error.code()


@pytest.mark.parametrize("name", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_signs_in(secured: SecureCluster, mechanism: str, name: str) -> None:
    round_trip(secured.librdkafka(mechanism=mechanism, name=name))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_is_refused_with_a_wrong_password(secured: SecureCluster, mechanism: str) -> None:
    assert refusal(secured.librdkafka(password="wrong", mechanism=mechanism)) == KafkaError._AUTHENTICATION


def test_a_mechanism_that_the_listener_lacks_is_refused(secured: SecureCluster) -> None:
    settings = secured.librdkafka() | {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": "principal=alice",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
    }
    assert refusal(settings) == KafkaError._AUTHENTICATION


def test_an_unknown_authority_is_refused_by_the_client(secured: SecureCluster, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text(SecureCluster(tmp_path).authority.certificate)
    assert refusal(secured.librdkafka() | {"ssl.ca.location": str(other)}) == KafkaError._SSL


def test_a_client_certificate_is_a_sign_in_of_its_own(secured: SecureCluster, tmp_path: Path) -> None:
    pair = secured.client_certificate("duke")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    key.write_text(pair.key)
    certificate.write_text(pair.certificate)
    settings = {
        "bootstrap.servers": secured.servers("SSL"),
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.ca_path),
    }
    round_trip(settings | {"ssl.key.location": str(key), "ssl.certificate.location": str(certificate)})
    # By TLS 1.3 a client without one hears of it only after the handshake.
    with pytest.raises(KafkaException):
        AdminClient({**settings, "log_level": "0"}).list_topics(timeout=3)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_signs_in(secured: SecureCluster, mechanism: str) -> None:
    def producer(password: str) -> KafkaProducer:
        return KafkaProducer(
            bootstrap_servers=secured.servers(),
            security_protocol="SASL_SSL",
            ssl_cafile=str(secured.ca_path),
            sasl_mechanism=mechanism,
            sasl_plain_username=ADMIN,
            sasl_plain_password=password,
            max_block_ms=5_000,
        )

    client = producer(PASSWORD)
    assert client.send("from-kafka-python", b"hello").get(20).offset >= 0
    client.close()


# aiokafka leaves the socket of a refused sign-in to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_signs_in(secured: SecureCluster, mechanism: str) -> None:
    async def send(password: str) -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=secured.servers(),
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=str(secured.ca_path)),
            sasl_mechanism=mechanism,
            sasl_plain_username=ADMIN,
            sasl_plain_password=password,
        )
        try:
            await producer.start()
            found: int = (await producer.send_and_wait("from-aiokafka", b"hello")).offset
            return found
        finally:
            await producer.stop()

    assert asyncio.run(send(PASSWORD)) >= 0
    with pytest.raises(AiokafkaError):
        asyncio.run(send("wrong"))
    gc.collect()


def test_a_user_is_made_changed_and_removed(secured: SecureCluster) -> None:
    admin = AdminClient(secured.librdkafka())
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)

    def alter(change: Any) -> None:
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(20)

    alter(UserScramCredentialUpsertion("carol", info, b"first"))
    carol = secured.librdkafka("carol", "first", "SCRAM-SHA-512")
    round_trip(carol)
    assert refusal(secured.librdkafka("carol", "first", "SCRAM-SHA-256")) == KafkaError._AUTHENTICATION
    alter(UserScramCredentialUpsertion("carol", info, b"second"))
    assert refusal(carol) == KafkaError._AUTHENTICATION
    round_trip(carol | {"sasl.password": "second"})
    alter(UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_512))
    assert refusal(carol | {"sasl.password": "second"}) == KafkaError._AUTHENTICATION


def test_penstocks_own_commands_sign_in(secured: SecureCluster, run_penstock: Callable[..., Any]) -> None:
    options = [f"-X{name}={value}" for name, value in secured.librdkafka().items() if name != "bootstrap.servers"]
    for command in (["cluster", "info"], ["cluster", "quorum"], ["topic", "list"], ["group", "list"], ["txn", "list"]):
        done = run_penstock(*command, "-b", secured.servers(), *options)
        assert done.returncode == 0, done.stderr
    refused = run_penstock("cluster", "quorum", "-b", secured.servers(), *options, "-Xsasl.password=wrong")
    assert refused.returncode != 0
    assert "wrong" not in refused.stdout + refused.stderr


def test_every_user_of_plain_is_a_different_principal(secured: SecureCluster) -> None:
    for user, password in PLAIN_USERS.items():
        round_trip(secured.librdkafka(user, password, "PLAIN"))
