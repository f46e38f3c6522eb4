"""A scripted broker that is a whole cluster: its only broker, every group's coordinator, every partition's leader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.cli.options import Connection
from penstock.cli.wire_client import WireClient
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from support.scripted_broker import ScriptedBroker


class ScriptedCluster:
    """Partitions by topic with their leaders, offsets by timestamp, and what every group has committed."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.leaders: dict[str, list[int]] = {"orders": [1, 1]}
        self.offsets: dict[int, int] = {-2: 5, -1: 20}
        # By topic: partition, offset, leader epoch, metadata.
        self.committed: dict[str, list[tuple[int, int, int, str]]] = {}
        broker.answers[ApiKey.METADATA] = self._metadata
        broker.answers[ApiKey.FIND_COORDINATOR] = self._coordinators
        broker.answers[ApiKey.LIST_OFFSETS] = self._list_offsets
        broker.answers[ApiKey.OFFSET_FETCH] = self._fetch_offsets

    def asked(self, kind: str) -> list[Any]:
        """The requests of a kind that came."""
        return [each for each in self.broker.asked if type(each).__name__ == f"{kind}Request"]

    def _metadata(self, request: Any) -> MetadataResponse:
        names = [*self.leaders] if request.topics is None else [topic.name for topic in request.topics]
        topics = []
        for name in names:
            code = 0 if name in self.leaders else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            rows = [
                MetadataResponsePartition(0, number, leader, 0, [1], [1])
                for number, leader in enumerate(self.leaders.get(name, ()))
            ]
            topics.append(MetadataResponseTopic(code, name, partitions=rows))
        return MetadataResponse(brokers=[MetadataResponseBroker(1, "127.0.0.1", self.broker.port)], topics=topics)

    def _coordinators(self, request: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[Coordinator(name, 1, "127.0.0.1", self.broker.port) for name in request.coordinator_keys]
        )

    def _list_offsets(self, request: Any) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic.name,
                    [
                        ListOffsetsPartitionResponse(
                            each.partition_index,
                            offset=self.offsets[each.timestamp] + each.partition_index
                            if each.timestamp >= 0
                            else self.offsets[each.timestamp],
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _fetch_offsets(self, request: Any) -> OffsetFetchResponse:
        topics = [
            OffsetFetchResponseTopics(name, partitions=[OffsetFetchResponsePartitions(*row) for row in rows])
            for name, rows in self.committed.items()
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(each.group_id, topics) for each in request.groups])


@contextmanager
def scripted_cluster(patience_s: float = 10.0) -> Iterator[tuple[ScriptedCluster, WireClient]]:
    """A cluster of one scripted broker, and a command's client of it."""
    with ScriptedBroker() as broker:
        cluster = ScriptedCluster(broker)
        with WireClient(Connection(broker.address, {}), patience_s=patience_s) as client:
            yield cluster, client
