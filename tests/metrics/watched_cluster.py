"""Three nodes and a gateway that are watched, and traffic for them."""

from __future__ import annotations

from typing import NamedTuple

import httpx
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing import Cluster
from support.gateway_process import GatewayProcess

RECORDS = 500
TIMEOUT_S = 30.0


class Watched(NamedTuple):
    """A cluster with where its nodes, by number, and its gateway are scraped."""

    cluster: Cluster
    nodes: dict[int, str]
    gateway: GatewayProcess
    topic: str

    def get(self, node_id: int, path: str) -> httpx.Response:
        """What a node answers on its port for machines."""
        return httpx.get(f"http://{self.nodes[node_id]}{path}", timeout=TIMEOUT_S)

    def metrics(self, node_id: int, query: str = "") -> dict[str, float]:
        """A node's series, by name and labels."""
        return parsed(self.get(node_id, f"/metrics{query}").text)

    def total(self, series: str, query: str = "") -> float:
        """The sum of a series over all nodes."""
        return sum(self.metrics(node_id, query).get(series, 0.0) for node_id in self.nodes)


def parsed(text: str) -> dict[str, float]:
    """The series of an exposition, by name and labels."""
    rows = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {series: float(value) for series, _, value in rows}


def produce(cluster: Cluster, topic: str, records: int = RECORDS) -> None:
    """Send records that compress well."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": "lz4", "acks": "all", "linger.ms": 50}
    )
    for number in range(records):
        producer.produce(topic, b"the same again and again " * 10, key=str(number))
    assert producer.flush(TIMEOUT_S) == 0


def produce_in_transaction(cluster: Cluster, topic: str) -> None:
    """Commit one transaction and abort another."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"writer of {topic}"})
    producer.init_transactions(TIMEOUT_S)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, b"in a transaction")
        producer.flush(TIMEOUT_S)
        end(TIMEOUT_S)


def consume(cluster: Cluster, topic: str, group: str) -> None:
    """Read some records as a member of a group, and commit one of each partition: the group stays behind."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read = 0
    while read < RECORDS:
        batch = consumer.consume(RECORDS, TIMEOUT_S)
        assert batch, f"{read} records came and then none"
        read += len(batch)
    consumer.commit(offsets=[TopicPartition(topic, partition, 1) for partition in range(3)], asynchronous=False)
    consumer.close()
