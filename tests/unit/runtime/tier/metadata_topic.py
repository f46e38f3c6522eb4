"""`__remote_log_metadata` in memory: the brokers that lead its partitions, and the controller that creates it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from penstock.core.metadata.image import Image, PartitionState, partition_record
from penstock.core.metadata.topics import NewTopic
from penstock.core.tier.metadata_records import METADATA_TOPIC
from penstock.model.errors import ErrorCode
from penstock.runtime.brokers import Brokers
from penstock.runtime.controller.client import TopicCreator
from penstock.runtime.env import Env
from penstock.runtime.tier.metadata import MetadataTopicSettings, RemoteLogMetadata
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.metadata_records import TopicRecord
from penstock.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.wire.records import read_header, split_batches

NODE = 1
TOPIC_ID = b"m" * 16
SETTINGS = MetadataTopicSettings(partitions=2, replication_factor=3, retention_ms=-1)


class MetadataTopic:
    """Both the topic and the brokers to ask; a fetch waits for records as long as it may."""

    def __init__(self, env: Env, image: Image | None = None, leaders: tuple[int, ...] = (NODE, 2)) -> None:
        self.env = env
        self.image = image if image is not None else Image()
        self.node_id = NODE
        self.leaders = leaders
        self.logs: dict[int, list[bytes]] = {number: [] for number in range(len(leaders))}
        self.ends = dict.fromkeys(self.logs, 0)
        self.starts = dict.fromkeys(self.logs, 0)
        # Of leaders that do not know yet how far their predecessors had committed.
        self.high_watermarks: dict[int, int] = {}
        # The partitions and leader epochs of which the end was requested.
        self.end_requests: list[tuple[int, int]] = []
        self.appended = {number: asyncio.Event() for number in self.logs}
        # The leader to whom each request was sent, when, and the request.
        self.fetches: list[tuple[int, int, FetchRequest, int]] = []
        self.produces: list[tuple[int, int, ProduceRequest]] = []
        # What the next requests come to instead: an exception, or a row's error.
        self.fetch_outcomes: list[Exception | PartitionData | FetchResponse] = []
        self.produce_outcomes: list[Exception | PartitionProduceResponse] = []
        self.created: list[NewTopic] = []
        self.create_outcome = SimpleNamespace(error=ErrorCode.NONE, message="")
        self.on_create: Callable[[], None] = self.add_topic
        self.batches_per_fetch = 99
        self.metadata = RemoteLogMetadata(env, self.image, cast("TopicCreator", self), cast("Brokers", self), SETTINGS)

    def add_topic(self) -> None:
        """The topic is in this broker's metadata from now on."""
        self.image.replay(TopicRecord(METADATA_TOPIC, TOPIC_ID))
        self.elect(4)

    def elect(self, epoch: int) -> None:
        """The leaders begin another epoch."""
        for number, leader in enumerate(self.leaders):
            state = PartitionState((leader,), (leader,), leader, epoch, epoch, (bytes(16),))
            self.image.replay(partition_record(TOPIC_ID, number, state))

    def lose(self, number: int) -> None:
        """An unclean election: the last batch is gone."""
        self.logs[number].pop()
        self.ends[number] = read_header(self.logs[number][-1], 0).next_offset if self.logs[number] else 0

    def append(self, number: int, batch: bytes) -> int:
        """Append a batch; its base offset is that of the log's end."""
        base = self.ends[number]
        self.logs[number].append(base.to_bytes(8, "big") + batch[8:])
        self.ends[number] = read_header(self.logs[number][-1], 0).next_offset
        self.appended[number].set()
        self.appended[number] = asyncio.Event()
        return base

    async def create_topics(self, wanted: list[NewTopic]) -> list[Any]:
        self.created += wanted
        self.on_create()
        return [self.create_outcome]

    async def ask(self, broker_id: int, request: Any, *, timeout_ms: int | None = None, lane: int = -1) -> Any:
        assert timeout_ms == 15_000
        if isinstance(request, ProduceRequest):
            return await self._produce(broker_id, request)
        if isinstance(request, ListOffsetsRequest):
            return self._end_offset(broker_id, request)
        self.fetches.append((broker_id, self.env.monotonic_ms(), request, lane))
        await asyncio.sleep(0.001)
        if self.fetch_outcomes:
            outcome = self.fetch_outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome if isinstance(outcome, FetchResponse) else self._answer(outcome)
        wanted = request.topics[0].partitions[0]
        number, offset = wanted.partition, wanted.fetch_offset
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(request.max_wait_ms / 1000):
                while self.ends[number] <= offset:
                    await self.appended[number].wait()
        if offset < self.starts[number]:
            return self._answer(
                PartitionData(number, ErrorCode.OFFSET_OUT_OF_RANGE, -1, log_start_offset=self.starts[number])
            )
        high_watermark = self.high_watermarks.get(number, self.ends[number])
        if offset > self.ends[number]:
            return self._answer(PartitionData(number, ErrorCode.OFFSET_OUT_OF_RANGE, -1, log_start_offset=0))
        found = [one for one in self.logs[number] if offset < read_header(one, 0).next_offset <= high_watermark]
        data = b"".join(found[: self.batches_per_fetch])
        return self._answer(PartitionData(number, 0, high_watermark, log_start_offset=0, records=data))

    def _end_offset(self, broker_id: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (wanted,) = request.topics[0].partitions
        number = wanted.partition_index
        assert (broker_id, request.replica_id, wanted.timestamp) == (self.leaders[number], -1, -1)
        self.end_requests.append((number, wanted.current_leader_epoch))
        row = ListOffsetsPartitionResponse(number, 0, offset=self.ends[number])
        if number in self.high_watermarks:
            row = ListOffsetsPartitionResponse(number, ErrorCode.OFFSET_NOT_AVAILABLE)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(METADATA_TOPIC, [row])])

    async def _produce(self, broker_id: int, request: ProduceRequest) -> ProduceResponse:
        self.produces.append((broker_id, self.env.monotonic_ms(), request))
        await asyncio.sleep(0.001)
        data = request.topic_data[0].partition_data[0]
        row: Any = self.produce_outcomes.pop(0) if self.produce_outcomes else None
        if isinstance(row, Exception):
            raise row
        if row is None:
            content = bytes(data.records)
            assert len(list(split_batches(content, 1 << 20))) == 1
            row = PartitionProduceResponse(data.index, 0, self.append(data.index, content))
        return ProduceResponse([TopicProduceResponse(METADATA_TOPIC, TOPIC_ID, [row])])

    @staticmethod
    def _answer(row: PartitionData) -> FetchResponse:
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[row])])
