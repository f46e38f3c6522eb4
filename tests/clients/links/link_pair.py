"""Two clusters and a link between them, as tests use them: requests of links, and whole logs batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from confluent_kafka import Producer

from penstock.client.cluster import ClusterClient
from penstock.client.failures import NoAnswer
from penstock.client.operations.routing import TryAgain
from penstock.client.settings import read_settings
from penstock.model.ids import TopicPartition
from penstock.runtime.controller.links import LinkAction
from penstock.testing import Cluster
from penstock.wire.messages.alter_link import AlterableLinkConfig, AlterLinkRequest, AlterLinkResponse
from penstock.wire.messages.describe_links import DescribedLink, DescribedMirrorPartition, DescribeLinksRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.records import read_header
from support.processes import eventually
from support.wire_client import WireClient

LINK = "eu"
PATIENCE_S = 30.0
QUICK = {"link.metadata.refresh.ms": "100"}


class NotNow(Exception):
    """A partition cannot be read at this moment."""


class Served(Protocol):
    """A cluster of any kind."""

    @property
    def bootstrap_servers(self) -> str: ...


class Servers(NamedTuple):
    """A cluster that another program runs."""

    bootstrap_servers: str


class Batch(NamedTuple):
    """What is the same on both sides: not the leader epoch."""

    base_offset: int
    last_offset: int
    crc: int


def alter(
    destination: Cluster,
    action: LinkAction,
    topics: Sequence[str] | None = None,
    configs: Mapping[str, str | None] | None = None,
    *,
    name: str = LINK,
    exclude: Sequence[str] | None = None,
) -> AlterLinkResponse:
    """One request to the destination; its response may be a refusal."""
    rows = [AlterableLinkConfig(*item) for item in (configs or {}).items()]
    request = AlterLinkRequest(name, action, topics, exclude, rows)
    with WireClient(destination.bootstrap_servers.split(",")[0]) as wire:
        response: AlterLinkResponse = wire.call(request, 0)
    return response


def link(source: Served, destination: Cluster, *topics: str, **configs: str) -> None:
    """Make the link, which must succeed."""
    made = alter(
        destination,
        LinkAction.CREATE,
        topics or ["*"],
        {"bootstrap.servers": source.bootstrap_servers, **QUICK, **configs},
    )
    assert (made.error_code, made.error_message) == (0, None)


def describe(destination: Cluster) -> list[DescribedLink]:
    """The links, as every broker that is up describes them."""
    found = []
    for node_id, pid in destination.pids.items():
        if pid is not None:
            with WireClient(destination.address(node_id)) as wire:
                found += wire.call(DescribeLinksRequest(None), 0).links
    return found


def partitions(destination: Cluster, topic: str) -> dict[int, DescribedMirrorPartition]:
    """The state of a mirror's partitions, from their leaders."""
    return {
        row.partition: row
        for one in describe(destination)
        for mirror in one.mirrors
        if mirror.topic == topic
        for row in mirror.partitions
    }


def produce(cluster: Served, topic: str, values: Sequence[str], **settings: str) -> None:
    """Write records with an idempotent producer, and wait for all of them."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "log_level": 0, **settings}
    )
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def batches(cluster: Served, topic: str, partition: int = 0) -> list[Batch]:
    """Everything that consumers may read of a partition, batch by batch, transactions undecided or not."""
    name = TopicPartition(topic, partition)
    found: list[Batch] = []
    with ClusterClient(read_settings({"bootstrap.servers": cluster.bootstrap_servers})) as client:
        offset = client.offsets({name: -2})[name]
        while True:
            row = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=8 << 20)
            request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic, b"\0" * 16, [row])])
            answer = client.leader(name).call(request).responses[0].partitions[0]
            if answer.error_code:
                raise NotNow(f"{name}: error {answer.error_code}")
            data = memoryview(answer.records or b"")
            position = 0
            while position < len(data):
                header = read_header(data, position)
                found.append(Batch(header.base_offset, header.last_offset, header.crc))
                position += header.size_bytes
                offset = header.next_offset
            if not position:
                return found


def end_of(cluster: Served, topic: str, partition: int = 0) -> int:
    """The offset after the last committed record."""
    name = TopicPartition(topic, partition)
    with ClusterClient(read_settings({"bootstrap.servers": cluster.bootstrap_servers})) as client:
        return client.offsets({name: -1})[name]


def wait_until_equal(source: Served, destination: Served, topic: str, partition: int = 0) -> None:
    """Wait until the mirror has everything, and check that it is the same."""
    expected = batches(source, topic, partition)
    assert eventually(lambda: batches_or_none(destination, topic, partition) == expected, PATIENCE_S)


def batches_or_none(cluster: Served, topic: str, partition: int) -> list[Batch] | None:
    """As `batches`, or None while the topic is not there, or its leader moves."""
    with ClusterClient(read_settings({"bootstrap.servers": cluster.bootstrap_servers})) as client:
        if topic not in client.topics():
            return None
    with suppress(NotNow, NoAnswer, TryAgain):
        return batches(cluster, topic, partition)
    return None
