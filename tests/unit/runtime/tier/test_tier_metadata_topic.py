"""`__remote_log_metadata`: who creates it, how it is followed and written, and from when on its state counts."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from metadata_topic import NODE, SETTINGS, TOPIC_ID, MetadataTopic

from penstock.core.metadata.topics import NewTopic
from penstock.core.tier.metadata_records import METADATA_TOPIC, TierKey, begun, changed, encode_record
from penstock.core.tier.metadata_records import metadata_partition as partition_of
from penstock.core.tier.segments import EpochStart, RemoteSegment, SegmentState
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.peer import PeerLost
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.wire.messages.produce import PartitionProduceResponse
from penstock.wire.records import Record, build_batch, read_records
from support.virtual_time import WALL_START_MS, VirtualEnv, run_virtually

# Keys whose records are in partition 0 and in partition 1 of the topic.
KEYS = [next(key for n in range(99) if partition_of(key := TierKey(b"o" * 16, n), 2) == number) for number in (0, 1)]
FIRST, SECOND = KEYS


def segment(number: int) -> RemoteSegment:
    return RemoteSegment(bytes([number]) * 16, number * 10, number * 10 + 9, 100, 5, (EpochStart(0, 0),))


def batch(key: TierKey, *numbers: int, **options: Any) -> bytes:
    values = [encode_record(begun("orders", key, segment(number))) for number in numbers]
    return build_batch([Record(at, 0, None, value) for at, value in enumerate(values)], **options)


def ids(topic: MetadataTopic, key: TierKey) -> list[int] | None:
    known = topic.metadata.get(key)
    return None if known is None else [one.segment_id[0] for one in known.segments()]


def started(env: VirtualEnv, **options: Any) -> MetadataTopic:
    topic = MetadataTopic(env, **options)
    topic.add_topic()
    topic.metadata.start()
    return topic


def test_nothing_is_followed_before_the_broker_has_started_or_without_the_topic() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = MetadataTopic(env)
        topic.add_topic()
        assert topic.metadata.get(FIRST) is None
        assert not topic.metadata.is_loaded(FIRST)
        assert topic.metadata.led_here() == []
        with pytest.raises(ApiError) as raised:
            await topic.metadata.up_to_date(FIRST)
        assert raised.value.code == ErrorCode.BROKER_NOT_AVAILABLE
        without = MetadataTopic(env)
        without.metadata.start()
        assert without.metadata.get(FIRST) is None
        assert without.metadata.led_here() == []
        await asyncio.sleep(5)
        assert topic.fetches == without.fetches == without.created == []

    run_virtually(story)


def test_the_state_counts_once_everything_was_read() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        topic.batches_per_fetch = 1
        for number in (1, 2, 3):
            topic.append(0, batch(FIRST, number))
        assert ids(topic, FIRST) is None
        assert not topic.metadata.is_loaded(FIRST)
        # Each of three fetches takes a millisecond.
        await asyncio.sleep(0.0025)
        assert not topic.metadata.is_loaded(FIRST)
        assert ids(topic, FIRST) is None
        await asyncio.sleep(0.001)
        assert topic.metadata.is_loaded(FIRST)
        assert ids(topic, FIRST) == [1, 2, 3]
        assert [key for key, _ in topic.metadata.all()] == [FIRST]
        topic.append(0, batch(FIRST, 4))
        await asyncio.sleep(0.1)
        assert ids(topic, FIRST) == [1, 2, 3, 4]

    run_virtually(story)


def test_each_partition_of_the_topic_is_read_from_its_leader_by_one_reader() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        for _ in range(2):
            topic.metadata.get(FIRST)
            topic.metadata.is_loaded(SECOND)
        await asyncio.sleep(0.1)
        assert len(topic.fetches) == 2
        for number, (leader, _, request, lane) in enumerate(topic.fetches):
            (asked,) = request.topics
            (wanted,) = asked.partitions
            assert (asked.topic, asked.topic_id) == (METADATA_TOPIC, TOPIC_ID)
            assert (leader, lane, wanted.partition) == (topic.leaders[number], number, number)
            assert (wanted.current_leader_epoch, wanted.fetch_offset) == (4, 0)
            # It waits for half a second, and takes at most a megabyte.
            assert (request.max_wait_ms, request.min_bytes) == (500, 1)
            assert (request.max_bytes, wanted.partition_max_bytes) == (1 << 20, 1 << 20)

    run_virtually(story)


def test_what_is_led_here_is_followed_and_listed_once_it_is_loaded() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        topic.append(0, batch(FIRST, 1))
        topic.append(1, batch(SECOND, 2))
        assert topic.metadata.led_here() == []
        await asyncio.sleep(0.1)
        assert [key for key, _ in topic.metadata.led_here()] == [FIRST]
        assert {leader for leader, *_ in topic.fetches} == {NODE}

    run_virtually(story)


def test_up_to_date_waits_for_a_fetch_that_was_sent_after_the_call() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        assert len(await topic.metadata.up_to_date(FIRST)) == 0
        await asyncio.sleep(0.1)
        before = len(topic.fetches)
        # The fetch under way could be answered with what was there when it was sent.
        remote = await topic.metadata.up_to_date(FIRST)
        assert len(remote) == 0
        assert len(topic.fetches) >= before + 1
        assert topic.fetches[before][1] >= 500
        topic.append(0, batch(FIRST, 1))
        assert len(await topic.metadata.up_to_date(FIRST)) == 1

    run_virtually(story)


def test_a_new_leader_is_believed_once_it_knows_what_was_committed_before() -> None:
    """Its high watermark was taken for the end: what it had not seen committed yet was not known."""

    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        for number in (1, 2):
            topic.append(0, batch(FIRST, number))
        topic.high_watermarks[0] = 1
        topic.metadata.get(FIRST)
        await asyncio.sleep(3)
        assert not topic.metadata.is_loaded(FIRST)
        del topic.high_watermarks[0]
        await topic.metadata.up_to_date(FIRST)
        assert ids(topic, FIRST) == [1, 2]
        assert set(topic.end_requests) == {(0, 4)}
        count = len(topic.end_requests)
        await topic.metadata.up_to_date(FIRST)
        assert len(topic.end_requests) == count
        # The same of its successor, although something was read of another leader.
        topic.append(0, batch(FIRST, 3))
        topic.elect(5)
        topic.high_watermarks[0] = 2
        known = asyncio.ensure_future(topic.metadata.up_to_date(FIRST))
        await asyncio.sleep(3)
        assert not known.done()
        del topic.high_watermarks[0]
        assert len(await known) == 3

    run_virtually(story)


def test_what_an_unclean_election_took_from_the_topic_is_forgotten() -> None:
    """What came in its place was never read, as its offsets had been read before."""

    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        for number in (1, 2):
            topic.append(0, batch(FIRST, number))
        await topic.metadata.up_to_date(FIRST)
        topic.lose(0)
        topic.elect(5)
        await asyncio.sleep(1)
        assert ids(topic, FIRST) == [1]
        topic.append(0, batch(FIRST, 3))
        await topic.metadata.up_to_date(FIRST)
        assert ids(topic, FIRST) == [1, 3]

    run_virtually(story)


def test_up_to_date_gives_up_when_no_leader_answers() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        topic.fetch_outcomes = [PeerLost("gone")] * 99
        with pytest.raises(TimeoutError):
            await topic.metadata.up_to_date(FIRST)
        assert env.passed_ms() == 15_000

    run_virtually(story)


def test_reads_that_fail_are_repeated_with_growing_pauses_until_one_succeeds() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        refused = FetchResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        topic.fetch_outcomes = [
            PeerLost("gone"),
            refused,
            FetchResponse(),
            PartitionData(0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader"),
            PeerLost("gone"),
            PeerLost("gone"),
        ]
        topic.metadata.get(FIRST)
        await asyncio.sleep(5)
        times = [at for _, at, *_ in topic.fetches[:8]]
        # A millisecond is what each fetch takes.
        pauses = [after - before - 1 for before, after in pairwise(times)]
        assert pauses == [50, 100, 200, 400, 800, 1_000, 1_000]
        assert topic.metadata.is_loaded(FIRST)
        topic.fetch_outcomes = [PeerLost("gone"), PeerLost("gone")]
        count = len(topic.fetches)
        await asyncio.sleep(1)
        after_error = [at for _, at, *_ in topic.fetches[count : count + 3]]
        assert [after_error[1] - after_error[0], after_error[2] - after_error[1]] == [51, 101]

    run_virtually(story)


def test_a_partition_that_the_metadata_does_not_know_is_read_once_it_does() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        topic.append(0, batch(FIRST, 1))
        known = topic.image.topics[METADATA_TOPIC]
        topic.metadata.get(FIRST)
        partitions, known.partitions = known.partitions, []
        await asyncio.sleep(0.1)
        assert topic.fetches == []
        known.partitions = partitions
        await asyncio.sleep(0.2)
        assert ids(topic, FIRST) == [1]

    run_virtually(story)


def test_reading_resumes_where_the_log_starts_now() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        topic.append(0, batch(FIRST, 1, 2))
        topic.append(0, batch(FIRST, 3))
        topic.logs[0].pop(0)
        topic.starts[0] = 2
        topic.metadata.get(FIRST)
        await asyncio.sleep(0.1)
        assert ids(topic, FIRST) == [3]
        assert [request.topics[0].partitions[0].fetch_offset for *_, request, _ in topic.fetches] == [0, 2, 3]

    run_virtually(story)


def test_an_answer_that_knows_less_than_was_read_is_not_followed_back() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        topic.append(0, batch(FIRST, 1, 2))
        await topic.metadata.up_to_date(FIRST)
        behind = PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1, log_start_offset=1)
        topic.fetch_outcomes = [behind]
        await asyncio.sleep(2)
        assert {request.topics[0].partitions[0].fetch_offset for *_, request, _ in topic.fetches[1:]} == {2}
        assert ids(topic, FIRST) == [1, 2]

    run_virtually(story)


def test_only_data_after_the_position_counts_and_what_is_not_understood_is_passed_over() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        topic.append(0, build_batch([Record(0, 0, b"\0\0\0\0", b"\0\0\0\0\0\0")], control=True, producer_id=7))
        topic.append(0, build_batch([Record(0, 0, None, None), Record(1, 0, None, b"\7?"), Record(2, 0, None, b"\1")]))
        topic.append(0, batch(FIRST, 1))
        finished = changed("orders", FIRST, segment(1).segment_id, SegmentState.DELETE_SEGMENT_STARTED, NODE, 9)
        topic.append(0, build_batch([Record(0, 0, None, encode_record(finished))]))
        # The first answer has two batches, the next one begins with the second of them again.
        assert topic.ends[0] == 6
        whole = b"".join(topic.logs[0])
        topic.fetch_outcomes = [PartitionData(0, 0, 6, records=whole), PartitionData(0, 0, 6, records=whole)]
        topic.metadata.get(FIRST)
        await asyncio.sleep(0.1)
        known = topic.metadata.get(FIRST)
        assert known is not None
        assert [one.state for one in known.segments()] == [SegmentState.DELETE_SEGMENT_STARTED]
        assert topic.fetches[-1][2].topics[0].partitions[0].fetch_offset == 6

    run_virtually(story)


def test_records_of_a_batch_that_was_read_in_part_are_replayed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.core.tier.metadata_records import RemotePartitions

    replayed: list[int] = []
    monkeypatch.setattr(RemotePartitions, "replay", lambda _, record: replayed.append(record.start_offset // 10))

    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        topic.append(0, batch(FIRST, 0, 1, 2))
        topic.starts[0] = 1
        topic.metadata.get(FIRST)
        await asyncio.sleep(0.1)
        # Where a log starts within a batch, the records before its start are not replayed.
        assert replayed == [1, 2]

    run_virtually(story)


def test_a_write_is_acknowledged_by_all_and_returns_once_it_is_read_back() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        await topic.metadata.write(SECOND, begun("orders", SECOND, segment(3)))
        assert ids(topic, SECOND) == [3]
        ((leader, _, request),) = topic.produces
        (wanted,) = request.topic_data
        (data,) = wanted.partition_data
        assert (leader, data.index, request.acks, request.timeout_ms) == (2, 1, -1, 15_000)
        assert (wanted.name, wanted.topic_id, request.transactional_id) == (METADATA_TOPIC, TOPIC_ID, None)
        (record,) = read_records(topic.logs[1][0], 1 << 20)
        assert record.timestamp == WALL_START_MS
        # What comes after others' records is only there once these were read, too.
        topic.append(1, batch(SECOND, 4))
        await topic.metadata.write(SECOND, begun("orders", SECOND, segment(5)))
        assert ids(topic, SECOND) == [3, 4, 5]

    run_virtually(story)


def test_a_write_that_fails_is_repeated_with_growing_pauses() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        refused = PartitionProduceResponse(0, ErrorCode.NOT_ENOUGH_REPLICAS)
        topic.produce_outcomes = [PeerLost("gone"), refused, refused, PeerLost("gone"), refused, refused, refused]
        await topic.metadata.write(FIRST, begun("orders", FIRST, segment(1)))
        times = [at for _, at, _ in topic.produces]
        pauses = [after - before - 1 for before, after in pairwise(times)]
        assert pauses == [50, 100, 200, 400, 800, 1_000, 1_000]
        assert ids(topic, FIRST) == [1]

    run_virtually(story)


def test_a_write_that_never_succeeds_times_out() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        topic.produce_outcomes = [PeerLost("gone")] * 99
        with pytest.raises(TimeoutError):
            await topic.metadata.write(FIRST, begun("orders", FIRST, segment(1)))
        assert env.passed_ms() == 15_000

    run_virtually(story)


def test_the_topic_is_created_with_its_settings_when_it_is_first_needed() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = MetadataTopic(env)
        topic.metadata.start()
        assert len(await topic.metadata.up_to_date(FIRST)) == 0
        configs = {"cleanup.policy": "delete", "retention.ms": "-1"}
        wanted = NewTopic(METADATA_TOPIC, SETTINGS.partitions, SETTINGS.replication_factor, configs=configs)
        assert topic.created == [wanted]
        await topic.metadata.up_to_date(FIRST)
        assert topic.created == [wanted]

    run_virtually(story)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
def test_a_topic_that_is_not_yet_known_here_is_waited_for(error: ErrorCode) -> None:
    async def story(env: VirtualEnv) -> None:
        topic = MetadataTopic(env)
        topic.metadata.start()
        topic.create_outcome.error = error
        topic.on_create = lambda: None
        with pytest.raises(ApiError, match="only just created") as raised:
            await topic.metadata.write(FIRST, begun("orders", FIRST, segment(1)))
        assert raised.value.code == ErrorCode.LEADER_NOT_AVAILABLE
        assert topic.produces == []

    run_virtually(story)


def test_a_topic_that_cannot_be_created_is_an_error_that_names_the_setting() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = MetadataTopic(env)
        topic.metadata.start()
        topic.create_outcome.error = ErrorCode.INVALID_REPLICATION_FACTOR
        topic.create_outcome.message = "there are 2 brokers"
        topic.on_create = lambda: None
        with pytest.raises(ApiError, match=r"there are 2 brokers; .*replication\.factor") as raised:
            await topic.metadata.up_to_date(FIRST)
        assert raised.value.code == ErrorCode.INVALID_REPLICATION_FACTOR

    run_virtually(story)


def test_a_response_without_the_partition_is_a_failed_read() -> None:
    async def story(env: VirtualEnv) -> None:
        topic = started(env)
        topic.append(0, batch(FIRST, 1))
        empty = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(0, 0, 0, records=b"")])])
        topic.fetch_outcomes = [empty, FetchResponse()]
        topic.metadata.get(FIRST)
        await asyncio.sleep(0.04)
        assert len(topic.fetches) == 2
        await asyncio.sleep(0.1)
        assert ids(topic, FIRST) == [1]

    run_virtually(story)
