"""What is read of `__remote_log_metadata` is read until it is known, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.metadata.image import Image, PartitionState, partition_record
from penstock.core.tier.metadata_records import METADATA_TOPIC, TierKey, begun, encode_record
from penstock.core.tier.segments import EpochStart, RemoteSegment
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import SystemEnv
from penstock.runtime.peer import PeerLost
from penstock.runtime.tier import metadata
from penstock.runtime.tier.metadata import MetadataTopicSettings, RemoteLogMetadata
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.metadata_records import TopicRecord
from penstock.wire.records import Record, build_batch

KEY = TierKey(b"o" * 16, 0)
SEGMENT = RemoteSegment(b"s" * 16, 0, 9, 100, 5, (EpochStart(0, 0),))


def answer(data: bytes) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(0, 0, 1, records=data)])])


def test_a_batch_that_cannot_be_read_at_first_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "RETRY_MIN_MS", 1)
    good = build_batch([Record(0, 0, None, encode_record(begun("orders", KEY, SEGMENT)))])
    answers: list[bytes | Exception] = [
        PeerLost("gone"),
        good[:-20] + bytes(20),
        ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files"),
        good[:30],
        good,
    ]

    async def ask(_: int, request: Any, **__: Any) -> Any:
        await asyncio.sleep(0)
        if isinstance(request, ListOffsetsRequest):
            row = ListOffsetsPartitionResponse(offset=1)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(METADATA_TOPIC, [row])])
        found = answers.pop(0) if answers else b""
        if isinstance(found, Exception):
            raise found
        return answer(found)

    async def story() -> None:
        image = Image()
        image.replay(TopicRecord(METADATA_TOPIC, b"m" * 16))
        image.replay(partition_record(b"m" * 16, 0, PartitionState((1,), (1,), 1, 0, 0, (bytes(16),))))
        env = SystemEnv()
        brokers: Any = SimpleNamespace(ask=ask, node_id=1)
        creator: Any = SimpleNamespace()
        known = RemoteLogMetadata(env, image, creator, brokers, MetadataTopicSettings(1, 1, -1))
        known.start()
        async with asyncio.timeout(10):
            remote = await known.up_to_date(KEY)
        assert [one.segment_id for one in remote.segments()] == [SEGMENT.segment_id]
        await env.close()

    asyncio.run(story())
    assert answers == []
