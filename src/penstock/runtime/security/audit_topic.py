"""Appends the audit trail to its topic, which is created on first use."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.metadata.image import Image
from penstock.core.metadata.topic_names import AUDIT_TOPIC
from penstock.core.metadata.topics import NewTopic
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.brokers import Brokers
from penstock.runtime.controller.client import TopicCreator
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.wire.records import Record, build_batch

REPLICAS = 3
BATCH_BYTES_MAX = 500_000
TIMEOUT_MS = 15_000


class AuditTopic:
    """Writes to the leader of the topic's only partition, which may be this broker."""

    def __init__(self, brokers: Brokers, image: Image, creator: TopicCreator, retention_ms: int) -> None:
        self._brokers = brokers
        self._image = image
        self._creator = creator
        self._retention_ms = retention_ms

    async def write(self, documents: Sequence[tuple[int, bytes]]) -> None:
        """Append documents, each with its time; raises ApiError or PeerLost, and then some may have been appended."""
        if AUDIT_TOPIC not in self._image.topics:
            await self._create()
        rows: list[Record] = []
        size = 0
        for time_ms, document in documents:
            if rows and size + len(document) > BATCH_BYTES_MAX:
                await self._append(rows)
                rows, size = [], 0
            rows.append(Record(len(rows), time_ms, None, document, ()))
            size += len(document)
        await self._append(rows)

    async def _create(self) -> None:
        brokers = sum(not broker.fenced for broker in self._image.brokers.values())
        configs = {"cleanup.policy": "delete", "retention.ms": str(self._retention_ms), "compression.type": "producer"}
        wanted = NewTopic(AUDIT_TOPIC, 1, min(REPLICAS, max(brokers, 1)), configs=configs)
        (outcome,) = await self._creator.create_topics([wanted])
        if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ApiError(outcome.error, f"{AUDIT_TOPIC} cannot be created: {outcome.message}")

    async def _append(self, rows: Sequence[Record]) -> None:
        topic = self._image.topics.get(AUDIT_TOPIC)
        leader = topic.partitions[0].leader if topic is not None else -1
        if topic is None or leader < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{AUDIT_TOPIC} has no leader")
        data = PartitionProduceData(0, memoryview(bytearray(build_batch(rows))))
        request = ProduceRequest(None, -1, TIMEOUT_MS, [TopicProduceData(topic.name, topic.topic_id, [data])])
        response: ProduceResponse = await self._brokers.ask(leader, request, timeout_ms=TIMEOUT_MS)
        row = response.responses[0].partition_responses[0]
        if row.error_code:
            raise ApiError(ErrorCode(row.error_code), row.error_message or ErrorCode(row.error_code).name)
