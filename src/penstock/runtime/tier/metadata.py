"""Reads and writes `__remote_log_metadata`, wherever its partitions are led.

A broker reads the partitions of the topic that tell of its own replicas, from the beginning, and keeps reading. What it
writes counts for it once it has read it back, so that a state is never ahead of the topic.

A leader that was just elected may not know yet how far its predecessor had committed. Where the topic ends is therefore
only believed of a leader that has answered ListOffsets in its epoch: until it knows that is an error (KIP-207).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import NamedTuple

from penstock.core.backoff import Backoff
from penstock.core.metadata.image import Image, PartitionState
from penstock.core.metadata.topics import NewTopic
from penstock.core.tier.metadata_records import (
    METADATA_TOPIC,
    RemotePartitions,
    TierKey,
    decode_record,
    encode_record,
    metadata_partition,
)
from penstock.core.tier.segments import RemotePartition
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.brokers import Brokers
from penstock.runtime.controller.client import TopicCreator
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.peer import PeerLost
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.wire.primitives import MalformedMessage
from penstock.wire.records import Record, build_batch, check_crc, read_header, read_records

FETCH_BYTES = 1024 * 1024
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
WAIT_MS = 500
TIMEOUT_MS = 15_000
RETRY_MIN_MS = 50
RETRY_MAX_MS = 1_000
CONSUMER = -1
LATEST = -1

logger = logging.getLogger("penstock.tier")


class MetadataTopicSettings(NamedTuple):
    """How the topic is created; its settings begin with rlmm.config.remote.log.metadata.topic."""

    partitions: int
    replication_factor: int
    retention_ms: int


class _Followed:
    """One partition of the topic: what was read of it, and how far."""

    def __init__(self) -> None:
        self.partitions = RemotePartitions()
        self.position = 0
        # How many requests were sent, and the number of the last one after which nothing more was there.
        self.requests = 0
        self.caught_up = 0
        # The leader epoch in which the leader knows everything that was committed before.
        self.known_epoch = -1
        self.changed = asyncio.Event()

    def begin_anew(self) -> None:
        """The topic has lost what was read last, to an unclean election."""
        self.partitions = RemotePartitions()
        self.position = self.caught_up = 0

    def notify(self) -> None:
        """Wake all that wait for a change."""
        self.changed.set()
        self.changed = asyncio.Event()


class RemoteLogMetadata:
    """What `__remote_log_metadata` contains about partitions."""

    def __init__(
        self, env: Env, image: Image, creator: TopicCreator, brokers: Brokers, settings: MetadataTopicSettings
    ) -> None:
        self._env = env
        self._image = image
        self._creator = creator
        self._brokers = brokers
        self._settings = settings
        self._followed: dict[int, _Followed] = {}
        self._is_started = False

    def start(self) -> None:
        """Brokers can be asked from now on."""
        self._is_started = True

    def get(self, key: TierKey) -> RemotePartition | None:
        """A partition's segments; None while nothing is known of them. Follows them from now on."""
        followed = self._follow(key)
        return followed.partitions.get(key) if followed is not None and followed.caught_up else None

    def is_loaded(self, key: TierKey) -> bool:
        """Whether everything that the topic said when it was first read is known."""
        followed = self._follow(key)
        return followed is not None and followed.caught_up > 0

    def all(self) -> list[tuple[TierKey, RemotePartition]]:
        """Every partition that is known of."""
        return [item for followed in self._followed.values() for item in followed.partitions.items()]

    def led_here(self) -> list[tuple[TierKey, RemotePartition]]:
        """Those whose partition of the topic is led here, loaded; follows what is not followed yet."""
        topic = self._image.topics.get(METADATA_TOPIC) if self._is_started else None
        found: list[tuple[TierKey, RemotePartition]] = []
        for index, state in enumerate(topic.partitions if topic is not None else ()):
            if state.leader == self._brokers.node_id:
                followed = self._follow_index(index)
                if followed.caught_up:
                    found += followed.partitions.items()
        return found

    async def up_to_date(self, key: TierKey) -> RemotePartition:
        """A partition's segments, with everything that was written before the call. Creates the topic if needed."""
        followed = await self._followed_now(key)
        sent = followed.requests
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while followed.caught_up <= sent:
                await followed.changed.wait()
        # One whose segments are all deleted is not the same as none.
        known = followed.partitions.get(key)
        return known if known is not None else RemotePartition()

    async def write(self, key: TierKey, record: object) -> None:
        """Append a record, and return once it is part of the state here; raises ApiError or TimeoutError."""
        followed = await self._followed_now(key)
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            offset = await self._append(key, encode_record(record))
            while followed.position <= offset:
                await followed.changed.wait()

    async def _append(self, key: TierKey, value: bytes) -> int:
        backoff = Backoff(RETRY_MIN_MS, RETRY_MAX_MS)
        while True:
            try:
                return await self._append_once(key, value)
            except PeerLost as error:
                reason = str(error)
            except ApiError as error:
                reason = error.message
            logger.info("cannot write to %s for now: %s", METADATA_TOPIC, reason)
            await asyncio.sleep(backoff.failed() / 1000)

    async def _append_once(self, key: TierKey, value: bytes) -> int:
        topic = self._image.topics[METADATA_TOPIC]
        index = metadata_partition(key, len(topic.partitions))
        batch = build_batch([Record(0, self._env.now_ms(), None, value, ())])
        data = PartitionProduceData(index, memoryview(bytearray(batch)))
        request = ProduceRequest(None, -1, TIMEOUT_MS, [TopicProduceData(topic.name, topic.topic_id, [data])])
        response: ProduceResponse = await self._brokers.ask(
            topic.partitions[index].leader, request, timeout_ms=TIMEOUT_MS
        )
        row = response.responses[0].partition_responses[0]
        if row.error_code:
            raise ApiError(ErrorCode(row.error_code), row.error_message or ErrorCode(row.error_code).name)
        return row.base_offset

    async def _ensure_topic(self) -> None:
        if METADATA_TOPIC in self._image.topics:
            return
        settings = self._settings
        configs = {"cleanup.policy": "delete", "retention.ms": str(settings.retention_ms)}
        wanted = NewTopic(METADATA_TOPIC, settings.partitions, settings.replication_factor, configs=configs)
        (outcome,) = await self._creator.create_topics([wanted])
        if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            hint = "see rlmm.config.remote.log.metadata.topic.replication.factor"
            raise ApiError(outcome.error, f"{METADATA_TOPIC} cannot be created: {outcome.message}; {hint}")
        if METADATA_TOPIC not in self._image.topics:
            # The metadata follows the controller's answer.
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{METADATA_TOPIC} was only just created")

    async def _followed_now(self, key: TierKey) -> _Followed:
        await self._ensure_topic()
        followed = self._follow(key)
        if followed is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker is only starting")
        return followed

    def _follow(self, key: TierKey) -> _Followed | None:
        topic = self._image.topics.get(METADATA_TOPIC) if self._is_started else None
        return self._follow_index(metadata_partition(key, len(topic.partitions))) if topic is not None else None

    def _follow_index(self, index: int) -> _Followed:
        followed = self._followed.get(index)
        if followed is None:
            followed = self._followed[index] = _Followed()
            keep_running(self._env, partial(self._read_on, index, followed), f"follow {METADATA_TOPIC}-{index}")
        return followed

    async def _read_on(self, index: int, followed: _Followed) -> None:
        backoff = Backoff(RETRY_MIN_MS, RETRY_MAX_MS)
        while True:
            followed.requests += 1
            try:
                await self._read(index, followed)
            except (PeerLost, ApiError) as error:
                # Also where a batch is damaged: another replica may lead soon.
                logger.debug("cannot read %s-%d for now: %s", METADATA_TOPIC, index, error)
                await asyncio.sleep(backoff.failed() / 1000)
                continue
            backoff.succeeded()
            followed.notify()

    async def _read(self, index: int, followed: _Followed) -> None:
        state = self._image.partition(METADATA_TOPIC, index)
        if state is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {METADATA_TOPIC}-{index}")
        row = await self._fetch(index, state, followed.position)
        if isinstance(row.records, bytes | bytearray | memoryview) and len(row.records):
            _replay(followed, bytes(row.records))
        end_offset = row.high_watermark
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if row.log_start_offset > followed.position:
                followed.position = row.log_start_offset
                return
            end_offset = await self._end_offset(index, state)
            if end_offset < followed.position:
                logger.warning("%s-%d ends at %d, before what was read of it", METADATA_TOPIC, index, end_offset)
                followed.begin_anew()
        elif followed.position >= end_offset and followed.known_epoch != state.leader_epoch:
            end_offset = await self._end_offset(index, state)
            followed.known_epoch = state.leader_epoch
        if followed.position >= end_offset:
            followed.caught_up = followed.requests

    async def _end_offset(self, index: int, state: PartitionState) -> int:
        """Where everything that was committed ends; raises ApiError while the leader does not know."""
        wanted = ListOffsetsPartition(index, state.leader_epoch, LATEST)
        request = ListOffsetsRequest(CONSUMER, topics=[ListOffsetsTopic(METADATA_TOPIC, [wanted])])
        response: ListOffsetsResponse = await self._brokers.ask(
            state.leader, request, timeout_ms=TIMEOUT_MS, lane=index
        )
        row = response.topics[0].partitions[0]
        if row.error_code:
            raise ApiError(ErrorCode(row.error_code), ErrorCode(row.error_code).name)
        return row.offset

    async def _fetch(self, index: int, state: PartitionState, offset: int) -> PartitionData:
        topic_id = self._image.topics[METADATA_TOPIC].topic_id
        wanted = FetchPartition(index, state.leader_epoch, offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[FetchTopic(METADATA_TOPIC, topic_id, [wanted])],
        )
        response: FetchResponse = await self._brokers.ask(state.leader, request, timeout_ms=TIMEOUT_MS, lane=index)
        if response.error_code or not response.responses:
            raise ApiError(ErrorCode(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR), "the fetch was refused")
        row = response.responses[0].partitions[0]
        if row.error_code and row.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise ApiError(ErrorCode(row.error_code), ErrorCode(row.error_code).name)
        return row


def _replay(followed: _Followed, data: bytes) -> None:
    position = 0
    while position < len(data):
        header = read_header(data, position)
        check_crc(data, position, header)
        if not header.is_control and header.next_offset > followed.position:
            for record in read_records(data, DECOMPRESSED_BYTES_MAX, position):
                if record.offset >= followed.position and record.value is not None:
                    try:
                        followed.partitions.replay(decode_record(record.value))
                    except (MalformedMessage, ValueError) as error:
                        # A newer broker may write what this one does not know.
                        logger.error("%s: a record at %d is not understood: %s", METADATA_TOPIC, record.offset, error)
        followed.position = max(followed.position, header.next_offset)
        position += header.size_bytes
