"""The same key goes to the same partition from every client that follows the Java client, and in our own code."""

from __future__ import annotations

import warnings

from confluent_kafka import Producer

from penstock.testing import Cluster
from penstock.wire.partitioner import murmur2, partition_for_key
from support.wire_client import WireClient, records_in

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2  # type: ignore[import-untyped]

PARTITIONS = 7
ODD = [b"", b"a", b"ab", b"abc", b"abcd", "schlüssel".encode(), bytes(range(256))]
KEYS = [*ODD, *(b"key-%d" % number for number in range(300))]


def test_murmur2_is_the_same_function() -> None:
    assert [murmur2(key) & 0xFFFFFFFF for key in KEYS] == [kafka_python_murmur2(key) & 0xFFFFFFFF for key in KEYS]


def test_librdkafka_with_murmur2_chooses_as_we_do(penstock_cluster: Cluster, wire: WireClient) -> None:
    topic = penstock_cluster.create_topic(partitions=PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": penstock_cluster.bootstrap_servers, "partitioner": "murmur2_random", "log_level": 0}
    )
    # librdkafka takes an empty key for none.
    sent = [key for key in KEYS if key]
    for key in sent:
        producer.produce(topic, key, key)
    assert producer.flush(10) == 0
    found = {
        record.key: partition
        for partition in range(PARTITIONS)
        for record in records_in(wire.fetch(topic, 0, partition=partition).records)
    }
    assert found == {key: partition_for_key(key, PARTITIONS) for key in sent}
    assert len(set(found.values())) == PARTITIONS
