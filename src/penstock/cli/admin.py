"""Brokers and topics through confluent-kafka's AdminClient. A failed call raises CommandFailure.

`group.admin` adds consumer groups; nothing else uses the AdminClient.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __init__ has no __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from penstock.cli.client import REQUEST_TIMEOUT_S, check_signs_in, client_settings, explain, explaining
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection
from penstock.cli.render import plural
from penstock.client.view import BrokerView

# Stands for the high watermark in a DeleteRecords request.
OFFSET_HIGH_WATERMARK = -1


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition's leader and replicas; leader -1 means that it has none."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions in order. `topic_id` is set only by `Admin.describe_topic`."""

    name: str
    partitions: tuple[Partition, ...]
    internal: bool
    topic_id: str = ""

    @property
    def replication_factor(self) -> int:
        """The replicas of the first partition."""
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class Config:
    """A topic's setting and the source of its value (`dynamic topic`, `default`, …)."""

    name: str
    value: str | None
    source: str


class Admin:
    """A connected admin client. The constructor raises CommandFailure if no broker can be reached."""

    def __init__(self, connection: Connection, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        check_signs_in(connection)
        self._timeout_s = timeout_s
        with explaining("librdkafka rejects these settings"):
            self._client = AdminClient(client_settings(connection))

    def brokers(self) -> tuple[str, int | None, list[BrokerView]]:
        """The cluster's id, its controller, and its brokers ordered by id."""
        future = self._client.describe_cluster(request_timeout=self._timeout_s)
        cluster = self._result(future, "cannot describe the cluster")
        brokers = [BrokerView(node.id, node.host, node.port, node.rack) for node in cluster.nodes]
        controller = cluster.controller.id if cluster.controller is not None else None
        return cluster.cluster_id, controller, sorted(brokers, key=lambda broker: broker.node_id)

    def topics(self) -> list[Topic]:
        """All topics by name."""
        with explaining("cannot list the topics"):
            metadata = self._client.list_topics(timeout=self._timeout_s)
        topics = []
        for name, topic in sorted(metadata.topics.items()):
            partitions = tuple(
                Partition(number, partition.leader, tuple(partition.replicas), tuple(partition.isrs))
                for number, partition in sorted(topic.partitions.items())
            )
            topics.append(Topic(name, partitions, name.startswith("__")))
        return topics

    def describe_topic(self, name: str) -> Topic:
        """One topic with its id; never creates it."""
        what = f"cannot describe topic {name}"
        futures = self._client.describe_topics(TopicCollection([name]), request_timeout=self._timeout_s)
        description = self._result(futures[name], what)
        partitions = tuple(
            Partition(
                partition.id,
                partition.leader.id if partition.leader is not None else -1,
                tuple(node.id for node in partition.replicas),
                tuple(node.id for node in partition.isr),
            )
            for partition in sorted(description.partitions, key=lambda partition: int(partition.id))
        )
        # librdkafka returns ids in standard base64; Kafka's tools use the URL-safe alphabet.
        topic_id = str(description.topic_id).replace("+", "-").replace("/", "_")
        return Topic(name, partitions, description.is_internal, topic_id)

    def chosen_partitions(self, topic: str, numbers: Iterable[int]) -> list[int]:
        """These partitions of a topic, or all if none are named; raises CommandFailure for one that there is not."""
        present = [partition.partition for partition in self.describe_topic(topic).partitions]
        unknown = sorted(set(numbers) - set(present))
        if unknown:
            raise CommandFailure(
                f"topic {topic} has no partition {unknown[0]}", f"it has {plural(len(present), 'partition')}"
            )
        return sorted(set(numbers)) or present

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
        validate_only: bool = False,
    ) -> None:
        """Create a topic; -1 stands for the broker's default."""
        topic = NewTopic(name, partitions, replication_factor, config=dict(configs))
        futures = self._client.create_topics(
            [topic], request_timeout=self._timeout_s, operation_timeout=self._timeout_s, validate_only=validate_only
        )
        self._result(futures[name], f"cannot create topic {name}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the broker has done it."""
        futures = self._client.delete_topics([name], request_timeout=self._timeout_s, operation_timeout=self._timeout_s)
        self._result(futures[name], f"cannot delete topic {name}")

    def add_partitions(self, name: str, total: int) -> None:
        """Increase a topic's partition count to `total`."""
        futures = self._client.create_partitions([NewPartitions(name, total)], request_timeout=self._timeout_s)
        self._result(futures[name], f"cannot raise topic {name} to {total} partitions")

    def topic_configs(self, name: str) -> list[Config]:
        """A topic's settings by name."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        futures = self._client.describe_configs([resource], request_timeout=self._timeout_s)
        entries: dict[str, ConfigEntry] = self._result(futures[resource], f"cannot read the settings of topic {name}")
        return [Config(name, entry.value, _source(entry)) for name, entry in sorted(entries.items())]

    def alter_topic(self, name: str, assign: Mapping[str, str], unset: Iterable[str]) -> None:
        """Set and unset settings of a topic in one request; the others keep their values."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in assign.items()
        ]
        entries += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        futures = self._client.incremental_alter_configs([resource], request_timeout=self._timeout_s)
        self._result(futures[resource], f"cannot change the settings of topic {name}")

    def offsets(self, name: str, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, tuple[int, int]]:
        """(offset, timestamp) by partition for `spec`; offset -1 if no record matches."""
        wanted = {TopicPartition(name, partition): spec for partition in partitions}
        if not wanted:
            return {}
        futures = self._client.list_offsets(wanted, request_timeout=self._timeout_s)
        found = {}
        for key, future in futures.items():
            info = self._result(future, f"cannot read the offsets of {name}-{key.partition}")
            found[key.partition] = (info.offset, info.timestamp)
        return found

    def earliest_offsets(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """The first offset, by partition."""
        found = self.offsets(name, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        return {partition: offset for partition, (offset, _) in found.items()}

    def latest_offsets(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """The end offset, by partition."""
        found = self.offsets(name, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {partition: offset for partition, (offset, _) in found.items()}

    def offsets_at(self, name: str, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int]:
        """The first offset at or after a timestamp, by partition; the end offset if there is no such record."""
        numbers = list(partitions)
        found = self.offsets(name, numbers, OffsetSpec.for_timestamp(timestamp_ms))
        missing = [partition for partition in numbers if found[partition][0] < 0]
        ends = self.latest_offsets(name, missing)
        return {partition: ends.get(partition, found[partition][0]) for partition in numbers}

    def delete_records(self, name: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Delete records before the given offsets; returns the new first offset by partition."""
        requests = [TopicPartition(name, partition, offset) for partition, offset in offsets.items()]
        futures = self._client.delete_records(requests, request_timeout=self._timeout_s)
        return {
            key.partition: self._result(future, f"cannot trim {name}-{key.partition}").low_watermark
            for key, future in futures.items()
        }

    def _result(self, future: concurrent.futures.Future[Any], what: str) -> Any:
        try:
            # librdkafka enforces the request's timeout itself; this one only guards against a missing reply.
            return future.result(timeout=self._timeout_s + 5)
        except KafkaException as error:
            raise explain(error.args[0], what) from error
        except concurrent.futures.TimeoutError:
            raise CommandFailure(what, f"the broker did not answer within {self._timeout_s:g} seconds") from None


def _source(entry: ConfigEntry) -> str:
    try:
        source = ConfigSource(entry.source)
    except ValueError:
        return "unknown"
    return source.name.removesuffix("_CONFIG").replace("_", " ").lower()
