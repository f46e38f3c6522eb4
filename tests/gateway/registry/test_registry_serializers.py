"""confluent-kafka's own serializers and deserializers, as they are, against a live registry and broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from penstock.testing import Cluster
from support.gateway_process import GatewayProcess

AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"int"}]}'
JSON = (
    '{"$schema":"http://json-schema.org/draft-07/schema#","title":"Order","type":"object",'
    '"properties":{"id":{"type":"string"},"amount":{"type":"integer"}},"required":["id"]}'
)
ORDER = {"id": "o-1", "amount": 7}


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": gateway.registry}) as client:
        yield client


def through_the_broker(cluster: Cluster, topic: str, value: bytes) -> bytes:
    """Produce a record, consume it again, return its value."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, value)
    assert producer.flush(20) == 0
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        read = message.value()
        assert read is not None
        return read
    finally:
        consumer.close()


def test_avro(client: SchemaRegistryClient, penstock_cluster: Cluster, penstock_topic: str) -> None:
    context = SerializationContext(penstock_topic, MessageField.VALUE)
    written = AvroSerializer(client, AVRO)(ORDER, context)
    assert written is not None
    read = AvroDeserializer(client)(through_the_broker(penstock_cluster, penstock_topic, written), context)
    assert read == ORDER
    assert client.get_latest_version(f"{penstock_topic}-value").version == 1


def test_json_schema(client: SchemaRegistryClient, penstock_cluster: Cluster, penstock_topic: str) -> None:
    context = SerializationContext(penstock_topic, MessageField.VALUE)
    written = JSONSerializer(JSON, client)(ORDER, context)
    assert written is not None
    read = JSONDeserializer(None, schema_registry_client=client)(
        through_the_broker(penstock_cluster, penstock_topic, written), context
    )
    assert read == ORDER


def order_class() -> Any:
    """The class that protoc would make of a file with an import."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=9, label=1)
    message.field.add(name="amount", number=2, type=5, label=1)
    message.field.add(name="at", number=3, type=11, type_name=".google.protobuf.Timestamp", label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf(client: SchemaRegistryClient, penstock_cluster: Cluster, penstock_topic: str) -> None:
    context = SerializationContext(penstock_topic, MessageField.VALUE)
    order = order_class()
    written = ProtobufSerializer(order, client, {"use.deprecated.format": False})(order(**ORDER), context)
    assert written is not None
    deserializer = ProtobufDeserializer(order, {"use.deprecated.format": False}, client)
    read = deserializer(through_the_broker(penstock_cluster, penstock_topic, written), context)
    assert (read.id, read.amount) == ("o-1", 7)
    stored = client.get_latest_version(f"{penstock_topic}-value").schema.schema_str
    assert stored is not None
    assert "message Order {" in stored


def test_an_incompatible_schema_is_refused(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(subject, Schema(AVRO, "AVRO"))
    worse = AVRO.replace('"int"', '"string"')
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, Schema(worse, "AVRO"))
    assert refused.value.http_status_code == 409
    assert refused.value.error_code == 409
    assert not client.test_compatibility(subject, Schema(worse, "AVRO"))


def test_other_calls_of_confluents_client(client: SchemaRegistryClient, subject: str) -> None:
    schema_id = client.register_schema(subject, Schema(AVRO, "AVRO"))
    assert client.get_schema(schema_id).schema_str == AVRO
    assert subject in client.get_subjects()
    assert client.get_versions(subject) == [1]
    assert client.lookup_schema(subject, Schema(AVRO, "AVRO")).version == 1
    assert client.set_compatibility(subject, "FULL") == {"compatibility": "FULL"}
    assert client.get_compatibility(subject) == "FULL"
    assert client.delete_subject(subject) == [1]
    assert client.delete_subject(subject, permanent=True) == [1]
    assert subject not in client.get_subjects()
