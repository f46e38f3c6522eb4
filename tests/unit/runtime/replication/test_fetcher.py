"""A follower's fetches from one leader, which a test plays: sessions, backoffs, offsets that the leader lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.config.topic import broker_defaults
from penstock.core.metadata.image import Image, PartitionState, ResourceType, partition_record
from penstock.core.replica.throttle import Throttle
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.logs.directories import begin_use, open_directory
from penstock.runtime.peer import Peer, PeerLost
from penstock.runtime.replication import fetcher as module
from penstock.runtime.replication.fetcher import FetcherSettings, ReplicaFetcher
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.segment_copy import TierHistory
from penstock.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.metadata_records import ConfigRecord, PartitionChangeRecord, TopicRecord
from penstock.wire.records import Record, build_batch
from support.virtual_time import VirtualEnv, run_virtually

NODE, LEADER = 1, 2
TOPIC, TOPIC_ID = "orders", b"o" * 16
SETTINGS = FetcherSettings(
    max_bytes=1_000, response_max_bytes=5_000, min_bytes=3, wait_max_ms=400, backoff_ms=2_000, timeout_ms=9_000
)

DEFAULTS = broker_defaults({"remote.log.storage.system.enable": "true"})
Answer = FetchResponse | Exception


def row(number: int = 0, error_code: int = 0, **fields: Any) -> PartitionData:
    return PartitionData(number, error_code, **{"high_watermark": 0, "log_start_offset": 0, **fields})


def answer(*rows: PartitionData, session_id: int = 7, topic_id: bytes = TOPIC_ID, error_code: int = 0) -> FetchResponse:
    topics = [FetchableTopicResponse(TOPIC, topic_id, rows)] if rows else []
    return FetchResponse(error_code=error_code, session_id=session_id, responses=topics)


def records(offset: int, count: int = 1, epoch: int = 0) -> bytes:
    rows = [Record(number, 0, None, b"v") for number in range(count)]
    return build_batch(rows, base_offset=offset, leader_epoch=epoch)


class World:
    """A broker with replicas of two partitions, and the leader of both."""

    def __init__(self, env: VirtualEnv, path: Path, **options: Any) -> None:
        self.env, self.image = env, Image()
        directory = open_directory(env, path, b"d" * 16)
        begin_use(env, directory)
        self.partitions = Partitions(env, NODE, self.image, lambda: DEFAULTS, [directory], 1 << 20)
        state = PartitionState((NODE, LEADER), (LEADER,), LEADER, 4, 0, (b"d" * 16, b"e" * 16))
        self.commit(TopicRecord(TOPIC, TOPIC_ID), *(partition_record(TOPIC_ID, number, state) for number in (0, 1)))
        # Every fetch: when it came, and what it was.
        self.fetches: list[tuple[int, FetchRequest]] = []
        self.offsets_asked: list[tuple[int, int]] = []
        self.answers: list[Answer] = []
        # By timestamp, the leader's offsets.
        self.offsets: dict[int, int] = {-1: 0, -2: 0}
        self.offsets_error = 0
        self.delay_s = 0.0
        self.is_closed = False
        peer = cast("Peer", self)
        self.fetcher = ReplicaFetcher(env, self.partitions, LEADER, peer, SETTINGS, lambda: 55, **options)

    def commit(self, *changes: Any) -> None:
        for record in changes:
            self.image.replay(record)
        self.partitions.follow(changes)

    def partition(self, number: int = 0) -> Partition:
        found = self.partitions.get(TOPIC, number)
        assert found is not None
        return found

    async def send(self, request: Any, *, timeout_ms: int) -> Any:
        assert timeout_ms == 9_000
        if isinstance(request, ListOffsetsRequest):
            asked = request.topics[0].partitions[0]
            assert (request.replica_id, request.topics[0].name, asked.current_leader_epoch) == (NODE, TOPIC, 4)
            self.offsets_asked.append((asked.partition_index, asked.timestamp))
            found = ListOffsetsPartitionResponse(0, self.offsets_error, offset=self.offsets[asked.timestamp])
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(TOPIC, [found])])
        self.fetches.append((self.env.passed_ms(), request))
        await asyncio.sleep(self.delay_s)
        if self.answers:
            outcome = self.answers.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        await asyncio.sleep(request.max_wait_ms / 1000)
        return answer()

    def close(self) -> None:
        self.is_closed = True

    def asked(self, number: int) -> dict[int, int]:
        """The partitions and offsets that a fetch names."""
        request = self.fetches[number][1]
        return {one.partition: one.fetch_offset for topic in request.topics for one in topic.partitions}

    def forgotten(self, number: int) -> list[int]:
        request = self.fetches[number][1]
        return [index for topic in request.forgotten_topics_data for index in topic.partitions]

    def session(self, number: int) -> tuple[int, int]:
        request = self.fetches[number][1]
        return request.session_id, request.session_epoch

    def fill(self, number: int, count: int) -> None:
        """So many records are here already."""
        data = records(0, count)
        from penstock.runtime.replication.following import replicate

        replicate(self.partition(number), memoryview(bytearray(data)), 0)


def play(path: Path, story: Callable[[World], Awaitable[None]], **options: Any) -> None:
    async def run(env: VirtualEnv) -> None:
        world = World(env, path, **options)
        # The logs are opened.
        await asyncio.sleep(0.1)
        try:
            await story(world)
        finally:
            world.fetcher.close()
            assert world.is_closed

    run_virtually(run)


def test_the_first_fetch_begins_a_session_with_every_partition(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        assert world.fetcher.is_idle
        await asyncio.sleep(5)
        assert world.fetches == []
        world.fill(1, 3)
        world.fetcher.add(world.partition(0))
        world.fetcher.add(world.partition(1))
        assert not world.fetcher.is_idle
        assert world.fetcher.keys == [(TOPIC_ID, 0), (TOPIC_ID, 1)]
        await asyncio.sleep(0.01)
        request = world.fetches[0][1]
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (NODE, 55)
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (400, 3, 5_000)
        assert (world.session(0), world.asked(0), world.forgotten(0)) == ((0, 0), {0: 0, 1: 3}, [])
        ((topic,),) = (request.topics,)
        assert (topic.topic, topic.topic_id) == (TOPIC, TOPIC_ID)
        one = topic.partitions[1]
        assert (one.current_leader_epoch, one.last_fetched_epoch, one.log_start_offset) == (4, 0, 0)
        assert (one.partition_max_bytes, one.replica_directory_id) == (1_000, b"d" * 16)

    play(tmp_path, story)


def test_a_session_is_continued_with_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SESSION_EPOCH_MAX", 3)

    async def story(world: World) -> None:
        world.answers = [
            answer(row(0), row(1)),
            answer(row(0, records=records(0, 2), high_watermark=5)),
            answer(),
            answer(),
            answer(),
        ]
        for number in (0, 1):
            world.fetcher.add(world.partition(number))
        await asyncio.sleep(0.01)
        assert [world.session(number) for number in range(6)] == [(0, 0), (7, 1), (7, 2), (7, 3), (7, 1), (7, 2)]
        # After the first answer nothing is new, after the second one the first partition has grown.
        assert [world.asked(number) for number in range(4)] == [{0: 0, 1: 0}, {}, {0: 2}, {}]
        assert world.partition(0).log.end_offset == 2
        assert world.fetcher.lag_max == 3

    play(tmp_path, story)


@pytest.mark.parametrize("refusal", [answer(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), answer(session_id=0)])
def test_a_session_that_the_leader_does_not_have_begins_anew(tmp_path: Path, refusal: FetchResponse) -> None:
    async def story(world: World) -> None:
        world.answers = [answer(row(0), row(1)), refusal, answer()]
        for number in (0, 1):
            world.fetcher.add(world.partition(number))
        await asyncio.sleep(0.01)
        # Its id is named once more, which ends it.
        assert [world.session(number) for number in range(4)] == [(0, 0), (7, 1), (7, 0), (7, 1)]
        assert [world.asked(number) for number in range(4)] == [{0: 0, 1: 0}, {}, {0: 0, 1: 0}, {}]

    play(tmp_path, story)


def test_a_partition_with_an_error_is_left_out_for_longer_and_longer(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        failed = answer(row(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        world.answers = [failed, failed]
        for number in (0, 1):
            world.fetcher.add(world.partition(number))
        await asyncio.sleep(0.01)
        # Nothing of it is asked for while it rests, and its rest ends the wait for others.
        assert (world.asked(1), world.forgotten(1)) == ({}, [0])
        assert world.fetches[1][1].max_wait_ms == module.BACKOFF_FIRST_MS
        # What a leader sends of it nevertheless changes nothing.
        assert world.answers == []
        await asyncio.sleep(module.BACKOFF_FIRST_MS / 1000 + 0.02)
        assert (world.asked(-1), world.forgotten(-1)) == ({0: 0}, [])
        world.answers = [failed]
        count = len(world.fetches)
        await asyncio.sleep(0.5)
        again = next(number for number in range(count, len(world.fetches)) if world.asked(number))
        lost = next(number for number in range(count, len(world.fetches)) if world.forgotten(number))
        assert world.fetches[again][0] - world.fetches[lost][0] == 2 * module.BACKOFF_FIRST_MS

    play(tmp_path, story)


def test_failures_are_counted_anew_after_a_success(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        failed = answer(row(0, ErrorCode.UNKNOWN_SERVER_ERROR))
        world.answers = [failed, failed]
        world.fetcher.add(world.partition())
        # With nothing else to fetch the follower rests, too.
        await asyncio.sleep(module.BACKOFF_FIRST_MS / 1000 - 0.01)
        assert len(world.fetches) == 1
        await asyncio.sleep(4 * module.BACKOFF_FIRST_MS / 1000)
        times = [at for at, _ in world.fetches[:3]]
        assert [after - before for before, after in pairwise(times)] == [
            module.BACKOFF_FIRST_MS,
            2 * module.BACKOFF_FIRST_MS,
        ]
        assert world.asked(2) == {0: 0}
        world.answers = [answer(row(0)), failed]
        await asyncio.sleep(1)
        assert world.fetcher._following[TOPIC_ID, 0].failures == 1

    play(tmp_path, story)


def test_a_leader_that_is_lost_is_tried_again_with_growing_pauses_and_a_new_session(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.answers = [answer(row(0))] + [PeerLost("gone")] * 8 + [answer(row(0)), PeerLost("gone")]
        world.fetcher.add(world.partition())
        await asyncio.sleep(15)
        times = [at for at, _ in world.fetches[1:12]]
        first = module.BACKOFF_FIRST_MS
        pauses = [min(first << number, SETTINGS.backoff_ms) for number in range(8)]
        assert [after - before for before, after in pairwise(times)] == [*pauses, 0, first]
        assert [world.session(number)[1] for number in range(1, 12)] == [1, *[0] * 8, 1, 0]
        assert all(world.asked(number) == {0: 0} for number in range(2, 10))

    play(tmp_path, story)


def test_a_response_records_when_the_leader_last_answered(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.fetcher.add(world.partition())
        await asyncio.sleep(0.3)
        assert world.fetcher.answered_ms == world.env.monotonic_ms() - 400
        await asyncio.sleep(0.2)
        assert world.fetcher.answered_ms == world.env.monotonic_ms() - 100

    play(tmp_path, story)


def test_a_leader_that_answers_early_and_empty_has_news_soon(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.answers = [answer(), answer(row(0)), answer()]
        world.fetcher.add(world.partition())
        await asyncio.sleep(0.01)
        waits = [request.max_wait_ms for _, request in world.fetches]
        assert waits == [400, module.EXPECTANT_WAIT_MS, 400, module.EXPECTANT_WAIT_MS]
        await asyncio.sleep(5)
        # One that answered in the end of the time had nothing.
        assert world.fetches[-1][1].max_wait_ms == 400

    play(tmp_path, story)


def test_partitions_that_are_not_followed_are_ignored_in_answers(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        strange = FetchableTopicResponse("others", b"x" * 16, [row(0, records=records(0))])
        found = FetchableTopicResponse(TOPIC, TOPIC_ID, [row(5), row(0, records=records(0))])
        world.answers = [FetchResponse(session_id=7, responses=[strange, found])]
        world.fetcher.add(world.partition(0))
        await asyncio.sleep(0.01)
        assert world.partition(0).log.end_offset == 1
        assert world.asked(1) == {0: 1}

    play(tmp_path, story)


def test_a_partition_that_is_removed_is_forgotten_and_gets_nothing_more(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for number in (0, 1):
            world.fetcher.add(world.partition(number))
        world.delay_s = 0.1
        world.answers = [answer(row(0), row(1)), answer(row(0, records=records(0)))]
        await asyncio.sleep(0.15)
        world.fetcher.remove((TOPIC_ID, 0))
        world.fetcher.remove((TOPIC_ID, 0))
        assert world.fetcher.keys == [(TOPIC_ID, 1)]
        await asyncio.sleep(0.1)
        assert world.partition(0).log.end_offset == 0
        assert (world.asked(2), world.forgotten(2)) == ({}, [0])
        # Added again it is asked for again.
        world.fetcher.add(world.partition(0))
        await asyncio.sleep(1)
        assert (world.asked(3), world.forgotten(3)) == ({0: 0}, [])

    play(tmp_path, story)


def test_what_arrives_after_the_leader_changed_is_not_appended(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.delay_s = 0.1
        world.answers = [answer(row(0, records=records(0)), row(1, records=records(0)))]
        for number in (0, 1):
            world.fetcher.add(world.partition(number))
        await asyncio.sleep(0.05)
        world.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=NODE, isr=[NODE, LEADER]))
        await asyncio.sleep(0.1)
        assert [world.partition(number).log.end_offset for number in (0, 1)] == [0, 1]

    play(tmp_path, story)


def test_a_log_that_diverges_is_truncated_and_fetched_from_there(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.fill(0, 1)
        world.answers = [answer(row(0, diverging_epoch=EpochEndOffset(0, 0)))]
        world.fetcher.add(world.partition(0))
        await asyncio.sleep(0.5)
        assert world.partition(0).log.end_offset == 0
        assert [world.asked(0), world.asked(1)] == [{0: 1}, {0: 0}]

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("latest", "earliest", "end"),
    [
        # The leader ends before this log does, or begins after it.
        (0, 0, 0),
        (9, 5, 5),
    ],
)
def test_an_offset_that_the_leader_does_not_have_is_replaced_by_one_that_it_has(
    tmp_path: Path, latest: int, earliest: int, end: int
) -> None:
    async def story(world: World) -> None:
        world.fill(0, 2)
        world.offsets = {-1: latest, -2: earliest}
        world.answers = [answer(row(0, ErrorCode.OFFSET_OUT_OF_RANGE))]
        world.fetcher.add(world.partition(0))
        await asyncio.sleep(0.5)
        assert world.offsets_asked == [(0, -1), (0, -2)]
        log = world.partition(0).log
        assert log.end_offset == end
        assert world.asked(1) == {0: end}
        assert world.fetcher._following[TOPIC_ID, 0].failures == 0

    play(tmp_path, story)


@pytest.mark.parametrize(("latest", "error"), [(2, 0), (9, 0), (0, ErrorCode.FENCED_LEADER_EPOCH), (-1, 0)])
def test_a_refusal_that_the_leaders_offsets_do_not_explain_is_a_failure(
    tmp_path: Path, latest: int, error: int
) -> None:
    async def story(world: World) -> None:
        world.fill(0, 2)
        world.offsets, world.offsets_error = {-1: latest, -2: 2}, error
        world.answers = [answer(row(0, ErrorCode.OFFSET_OUT_OF_RANGE))]
        world.fetcher.add(world.partition(0))
        await asyncio.sleep(0.01)
        assert world.partition(0).log.end_offset == 2
        assert world.fetcher._following[TOPIC_ID, 0].failures == 1
        assert len(world.fetches) == 1

    play(tmp_path, story)


def test_a_tiered_log_that_starts_again_forgets_its_former_start(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.commit(ConfigRecord(ResourceType.TOPIC, TOPIC, "remote.storage.enable", "true"))
        world.fill(0, 2)
        world.offsets = {-1: 9, -2: 5}
        world.answers = [answer(row(0, ErrorCode.OFFSET_OUT_OF_RANGE))]
        world.fetcher.add(world.partition(0))
        await asyncio.sleep(0.5)
        log = world.partition(0).log
        assert (log.start_offset, log.end_offset, world.partition(0).high_watermark) == (5, 5, 5)

    play(tmp_path, story)


def test_a_leader_that_is_lost_while_its_offsets_are_queried_is_tried_again_after_a_pause(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        send = world.send

        async def losing(request: Any, *, timeout_ms: int) -> Any:
            if isinstance(request, ListOffsetsRequest):
                raise PeerLost("gone")
            return await send(request, timeout_ms=timeout_ms)

        world.send = losing  # type: ignore[method-assign]
        world.answers = [answer(row(0, ErrorCode.OFFSET_OUT_OF_RANGE))]
        world.fetcher.add(world.partition(0))
        await asyncio.sleep(0.2)
        assert [at - world.fetches[0][0] for at, _ in world.fetches] == [0, module.BACKOFF_FIRST_MS]
        # In a new session, with every partition.
        assert (world.session(1), world.asked(1)) == ((7, 0), {0: 0})

    play(tmp_path, story)


def test_a_follower_that_is_closed_fetches_nothing_more(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.fetcher.add(world.partition(0))
        await asyncio.sleep(1)
        world.fetcher.close()
        count = len(world.fetches)
        await asyncio.sleep(5)
        assert (len(world.fetches), world.is_closed) == (count, True)

    play(tmp_path, story)


async def history(_: Partition, epoch: int, offset: int) -> tuple[int, TierHistory]:
    assert (epoch, offset) == (-1, 7)
    return 8, TierHistory((), ())


async def no_history(*_: Any) -> tuple[int, TierHistory]:
    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "away")


async def late_history(*_: Any) -> tuple[int, TierHistory]:
    raise TimeoutError


def test_records_that_are_only_in_object_storage_are_skipped_with_their_history(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.offsets = {-4: 8, -2: 3}
        world.answers = [answer(row(0, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE))]
        world.fetcher.add(world.partition(0))
        await asyncio.sleep(0.5)
        log = world.partition(0).log
        assert (log.end_offset, log.start_offset) == (8, 3)
        assert world.asked(1) == {0: 8}

    play(tmp_path, story, history_of=history)


@pytest.mark.parametrize("history_of", [None, no_history, late_history])
def test_a_start_in_object_storage_that_is_not_found_is_a_failure(tmp_path: Path, history_of: Any) -> None:
    async def story(world: World) -> None:
        world.offsets = {-4: 8, -2: 3}
        world.answers = [answer(row(0, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE))]
        world.fetcher.add(world.partition(0))
        await asyncio.sleep(0.01)
        assert world.partition(0).log.end_offset == 0
        assert world.fetcher._following[TOPIC_ID, 0].failures == 1

    play(tmp_path, story, history_of=history_of)


@pytest.mark.parametrize(("isr", "is_throttled"), [([LEADER], True), ([LEADER, NODE], False)])
def test_a_throttled_replica_rests_while_the_rate_is_exceeded_unless_it_is_in_sync(
    tmp_path: Path, isr: list[int], is_throttled: bool
) -> None:
    data = records(0)
    throttle = Throttle(lambda: len(data))

    async def story(world: World) -> None:
        listed = ConfigRecord(ResourceType.TOPIC, TOPIC, "follower.replication.throttled.replicas", f"0:{NODE}")
        world.commit(listed, PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=isr))
        world.answers = [answer(row(0, records=data), row(1, records=records(0)))]
        for number in (0, 1):
            world.fetcher.add(world.partition(number))
        await asyncio.sleep(0.01)
        assert [world.partition(number).log.end_offset for number in (0, 1)] == [1, 1]
        assert world.asked(1) == ({1: 1} if is_throttled else {0: 1, 1: 1})
        assert world.forgotten(1) == ([0] if is_throttled else [])
        await asyncio.sleep(1)
        # A byte of room is enough.
        assert any(world.asked(number).get(0) == 1 for number in range(1, len(world.fetches)))

    play(tmp_path, story, throttle=throttle)
