"""Values with schemas in the registry, read and written by confluent-kafka's serializers too."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.wrappers_pb2 import StringValue

import penstock
from penstock.client import Avro, JsonSchema, PenstockError, Protobuf, Registry, SerializationFailed


@dataclasses.dataclass
class Line:
    item: str
    amount: int = 1


@dataclasses.dataclass
class Order:
    customer: str
    lines: list[Line]
    note: str | None = None


@dataclasses.dataclass
class OldOrder:
    customer: str
    lines: list[Line]


ORDER = Order("alice", [Line("tea", 2), Line("coffee")])


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(registry_url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_url}) as client:
        yield client


@pytest.fixture
def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_values_of_types_round_trip(servers: str, registry_url: str, topic: str) -> None:
    serde = Avro(Order, registry=registry_url)
    with penstock.Admin(servers) as admin, penstock.Producer(servers, value=serde) as producer:
        admin.create_topic(topic, 1, 1)
        producer.send(topic, "alice", ORDER)
    with penstock.Consumer(servers, value=Avro(Order, registry=registry_url)) as consumer:
        consumer.subscribe(topic)
        record = consumer.poll(20)
        assert record is not None
        assert record.value == ORDER


def test_avro_is_interoperable_with_confluent_kafka(
    registry_url: str, topic: str, client: SchemaRegistryClient, context: SerializationContext
) -> None:
    serde = Avro(Order, registry=registry_url)
    data = serde.encode(ORDER, topic)
    assert data is not None
    fields = {
        "customer": "alice",
        "lines": [{"item": "tea", "amount": 2}, {"item": "coffee", "amount": 1}],
        "note": None,
    }
    assert AvroDeserializer(client)(data, context) == fields
    schema = client.get_latest_version(f"{topic}-value").schema.schema_str
    assert schema is not None
    written = AvroSerializer(client, schema)(fields, context)
    assert written is not None
    assert serde.decode(written, topic) == ORDER


def test_readers_and_writers_evolve_independently(registry_url: str, topic: str) -> None:
    old, new = Avro(OldOrder, registry=registry_url), Avro(Order, registry=registry_url)
    # The record's name is part of an Avro schema.
    old._schema = old._schema.replace("OldOrder", "Order")
    data = old.encode(OldOrder("alice", []), topic)
    assert data is not None
    assert new.decode(data, topic) == Order("alice", [], None)


def test_json_schemas_are_registered_from_types(
    registry_url: str, topic: str, client: SchemaRegistryClient, context: SerializationContext
) -> None:
    serde = JsonSchema(Order, registry=registry_url)
    data = serde.encode(ORDER, topic)
    assert data is not None
    schema = client.get_latest_version(f"{topic}-value").schema.schema_str
    assert schema is not None
    assert set(json.loads(schema)["required"]) == {"customer", "lines"}
    assert JSONDeserializer(schema)(data, context)["customer"] == "alice"
    assert serde.decode(data, topic) == ORDER


def test_protobuf_is_interoperable_with_confluent_kafka(
    registry_url: str, topic: str, client: SchemaRegistryClient, context: SerializationContext
) -> None:
    serde = Protobuf(StringValue, registry=registry_url)
    data = serde.encode(StringValue(value="tea"), topic)
    assert data is not None
    found = ProtobufDeserializer(StringValue, {"use.deprecated.format": False})(data, context)
    assert found.value == "tea"
    written = ProtobufSerializer(StringValue, client, {"use.deprecated.format": False})(StringValue(value="x"), context)
    assert written is not None
    assert serde.decode(written, topic).value == "x"


def test_registry_rejection_contains_the_reason(registry_url: str, topic: str) -> None:
    registry = Registry(registry_url)
    registry.register(f"{topic}-value", '"string"', "AVRO")
    with pytest.raises(PenstockError, match="compatible"):
        registry.register(f"{topic}-value", '"int"', "AVRO")
    with pytest.raises(SerializationFailed, match="no schema id"):
        Avro(Order, registry=registry).decode(b"plain", topic)
    with pytest.raises(PenstockError, match="does not answer"):
        Registry("http://127.0.0.1:1").schema(1)
