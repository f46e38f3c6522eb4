"""What waits for the image of the metadata log, and when it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.core.metadata.image import Image
from penstock.core.raft.voters import VoterSet
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import SystemEnv
from penstock.runtime.raft import applied_image
from penstock.runtime.raft.applied_image import RECORDS_PER_TURN, AppliedImage, differences
from penstock.runtime.raft.metadata_log import MetadataLog
from penstock.storage.settings import LogSettings
from penstock.wire.messages.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

TOPIC = 2


def topic(number: int) -> TopicRecord:
    return TopicRecord(f"topic-{number}", number.to_bytes(16, "big"))


def image_of(*records: Any) -> Image:
    image = Image()
    for record in records:
        image.replay(record)
    return image


def run(path: Path, work: Callable[[AppliedImage, MetadataLog], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        log = MetadataLog(SystemEnv(), path / "log", LogSettings(), VoterSet.of_ids([1]))
        log.open()
        await work(AppliedImage(), log)
        log.log.close(clean=True)

    asyncio.run(inside())


def test_a_waiter_continues_when_its_offset_is_applied(tmp_path: Path) -> None:
    async def work(applied: AppliedImage, log: MetadataLog) -> None:
        told: list[Any] = []
        applied.on_commit(told.extend)
        for number in range(3):
            log.append_records([topic(number)], 1)
        waiting = [applied.reached(1), applied.committed(2), applied.reached(3)]
        assert applied.apply(log, 2)
        await asyncio.sleep(0)
        assert [each.done() for each in waiting] == [True, True, False]
        assert told == [topic(0), topic(1)]
        assert applied.reached(2).done()
        assert applied.committed(2).done()
        assert applied.apply(log, 3)
        assert waiting[2].done()

    run(tmp_path, work)


def test_a_leaders_snapshot_lets_go_what_waits_for_offsets_before_its_end(tmp_path: Path) -> None:
    async def work(applied: AppliedImage, log: MetadataLog) -> None:
        log.append_records([topic(0)], 1)
        applied.apply(log, 1)
        told: list[Any] = []
        applied.on_commit(told.extend)
        waiting = [applied.reached(50), applied.committed(50), applied.reached(51)]
        applied.replace(image_of(topic(1)), 50)
        assert [each.done() for each in waiting] == [True, True, False]
        assert (applied.applied_offset, applied.bytes_since_snapshot) == (50, 0)
        assert told[0] == RemoveTopicRecord(topic_id=topic(0).topic_id)
        assert list(applied.image.topics) == ["topic-1"]

    run(tmp_path, work)


def test_much_is_applied_in_slices_and_a_batch_is_never_split(tmp_path: Path) -> None:
    async def work(applied: AppliedImage, log: MetadataLog) -> None:
        size = RECORDS_PER_TURN // 2 + 1
        for number in range(3):
            log.append_records([topic(number * size + each) for each in range(size)], 1)
        assert not applied.apply(log, 3 * size)
        assert applied.applied_offset == 2 * size == len(applied.image.topics)
        assert applied.apply(log, 3 * size)
        assert applied.applied_offset == 3 * size == len(applied.image.topics)
        whole = AppliedImage()
        assert whole.apply(log, 3 * size, everything=True)
        assert whole.applied_offset == 3 * size
        assert whole.bytes_since_snapshot == applied.bytes_since_snapshot == log.log.size_bytes

    run(tmp_path, work)


def test_leaders_futures_fail_with_the_leadership_and_all_with_the_log() -> None:
    async def test() -> None:
        applied = AppliedImage()
        leaders, followers = applied.committed(5), applied.reached(5)
        applied.leadership_lost()
        error = leaders.exception()
        assert isinstance(error, ApiError)
        assert error.code == ErrorCode.NOT_CONTROLLER
        assert not followers.done()
        again = applied.committed(6)
        applied.fail(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk failed"))
        for future in (followers, again):
            with pytest.raises(ApiError, match="the disk failed"):
                await future

    asyncio.run(test())


def test_a_listener_that_fails_keeps_nothing_from_the_others_and_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applied_image, "RETRY_FIRST_S", 0)

    async def work(applied: AppliedImage, log: MetadataLog) -> None:
        problems: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["exception"]))
        error = KeyError("a bug")
        caught_up = asyncio.Event()
        attempts: list[list[Any]] = []
        told: list[Any] = []

        def fails_twice(records: Sequence[Any]) -> None:
            attempts.append([*records])
            if len(attempts) < 3:
                raise error
            caught_up.set()

        applied.on_commit(fails_twice)
        applied.on_commit(told.extend)
        partition = PartitionRecord(0, topic(1).topic_id, (3,), (3,), leader=3, leader_epoch=0, partition_epoch=0)
        change = PartitionChangeRecord(0, topic(1).topic_id, leader=3)
        records = [topic(0), topic(1), partition, change]
        removed = RemoveTopicRecord(topic(0).topic_id)
        for record in (*records, removed):
            log.append_records([record], 1)
        waiting = applied.committed(2)
        assert applied.apply(log, 4)
        assert waiting.done()
        assert attempts == [[topic(0)]], "it gets nothing between what it missed and what follows"
        await asyncio.sleep(0)
        assert applied.apply(log, 5)
        await asyncio.wait_for(caught_up.wait(), 20)
        assert attempts[-1] == [topic(0), topic(1), removed, *applied.image.snapshot()]
        assert told == [*records, removed]
        assert problems == [error, error]
        applied.replace(image_of(topic(7)), 9)
        assert attempts[-1] == told[-2:] == [RemoveTopicRecord(topic(1).topic_id), topic(7)], "as all others"

    run(tmp_path, work)


def test_what_the_new_image_lacks_is_removed() -> None:
    old = image_of(
        topic(0),
        topic(1),
        RegisterBrokerRecord(broker_id=1, broker_epoch=5),
        RegisterBrokerRecord(broker_id=2, broker_epoch=6),
        ConfigRecord(TOPIC, "topic-1", "kept", "1"),
        ConfigRecord(TOPIC, "topic-1", "gone", "1"),
    )
    new = image_of(
        topic(1),
        RegisterBrokerRecord(broker_id=2, broker_epoch=6),
        ConfigRecord(TOPIC, "topic-1", "kept", "2"),
    )
    assert differences(old, new) == [
        RemoveTopicRecord(topic_id=topic(0).topic_id),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=5),
        ConfigRecord(TOPIC, "topic-1", "gone", None),
    ]
    assert differences(new, new) == []


def test_a_slice_ends_with_the_batch_that_fills_it(tmp_path: Path) -> None:
    async def work(applied: AppliedImage, log: MetadataLog) -> None:
        half = RECORDS_PER_TURN // 2
        for number in range(3):
            log.append_records([topic(number * half + each) for each in range(half)], 1)
        assert not applied.apply(log, 3 * half)
        assert applied.applied_offset == 2 * half

    run(tmp_path, work)
