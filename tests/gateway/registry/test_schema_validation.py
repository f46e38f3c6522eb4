"""Topics that take only records with registered schema ids: checked by the broker, against the gateway's registry."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.local.layout import free_ports
from penstock.testing import Cluster
from support.gateway_process import GatewayProcess

OK = ""
SCHEMA = '{"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "item", "type": "string"}]}'
NAMING = "io.confluent.kafka.serializers.subject"


class Shop:
    """A broker that validates, its registry, and producers."""

    def __init__(self, cluster: Cluster, gateway: GatewayProcess) -> None:
        self.cluster = cluster
        self.registry = SchemaRegistryClient({"url": gateway.registry})

    def topic(self, **settings: str) -> str:
        name = f"orders-{uuid.uuid4().hex[:8]}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(20)
        return name

    def send(self, topic: str, *values: bytes | None, **settings: Any) -> list[str]:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 20, **settings})
        outcomes: list[str] = []
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error.name() if error else OK))
        assert producer.flush(30) == 0
        return outcomes

    def serialized(self, topic: str, **conf: Any) -> bytes:
        serializer = AvroSerializer(self.registry, SCHEMA, conf=conf)
        value = serializer({"item": "tea"}, SerializationContext(topic, MessageField.VALUE))
        assert value is not None
        return value


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    port = free_ports(1)[0]
    urls = f"http://127.0.0.1:1,http://127.0.0.1:{port}"
    with Cluster(settings={"confluent.schema.registry.url": urls}) as cluster:
        arguments = ("--registry-port", str(port))
        with GatewayProcess(cluster.bootstrap_servers, *arguments) as gateway:
            made = Shop(cluster, gateway)
            with made.registry:
                yield made


CHECKED = {"confluent_value_schema_validation": "true"}


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_validation_accepts_serialized_records_and_rejects_others(codec: str, shop: Shop) -> None:
    topic = shop.topic(**CHECKED)
    good = shop.serialized(topic)
    assert shop.send(topic, good, None, good, **{"compression.type": codec}) == [OK] * 3
    for bad in (b"plain text", b"\0\0\xff\xff\xff no such schema"):
        assert shop.send(topic, bad, **{"compression.type": codec}) == ["INVALID_RECORD"]


def test_a_schema_of_another_subject_is_refused_until_it_is_registered_here(shop: Shop) -> None:
    topic, other = shop.topic(**CHECKED), shop.topic()
    foreign = shop.serialized(other)
    assert shop.send(topic, foreign) == ["INVALID_RECORD"]
    shop.serialized(topic)
    assert shop.send(topic, foreign) == [OK]


def test_topics_without_validation_accept_anything(shop: Shop) -> None:
    assert shop.send(shop.topic(), b"plain text") == [OK]


def test_subjects_may_be_named_after_the_record(shop: Shop) -> None:
    topic = shop.topic(confluent_value_subject_name_strategy=f"{NAMING}.RecordNameStrategy", **CHECKED)
    by_record = shop.serialized(topic, **{"subject.name.strategy": lambda _context, name: name})
    assert shop.send(topic, by_record) == [OK]


def test_many_records_in_flight_keep_their_order(shop: Shop) -> None:
    topic = shop.topic(**CHECKED)
    good = shop.serialized(topic)
    outcomes = shop.send(
        topic, *[good] * 2000, **{"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 10}
    )
    assert outcomes == [OK] * 2000


def test_producers_wait_for_a_registry_that_is_down() -> None:
    port = free_ports(1)[0]
    arguments = ("--registry-port", str(port))
    with Cluster(settings={"confluent.schema.registry.url": f"http://127.0.0.1:{port}"}) as cluster:
        with GatewayProcess(cluster.bootstrap_servers, *arguments) as gateway:
            there = Shop(cluster, gateway)
            with there.registry:
                topic = there.topic(**CHECKED)
                good = there.serialized(topic)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
        outcomes: list[str] = []
        producer.produce(topic, good, on_delivery=lambda error, _: outcomes.append(error.name() if error else OK))
        assert producer.flush(2) == 1
        with GatewayProcess(cluster.bootstrap_servers, *arguments):
            assert producer.flush(30) == 0
        assert outcomes == [OK]
