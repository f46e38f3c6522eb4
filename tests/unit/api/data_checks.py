"""What each API of the data path must answer, whatever the version."""

from __future__ import annotations

from typing import Any

from api_world import Ask, World

from penstock.model.errors import ErrorCode
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.describe_hot_keys import DescribeHotKeysRequest
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.wire_client import batch_of, records_in

IDS_IN_PRODUCE = 13
IDS_IN_FETCH = 13


def check_produce(ask: Ask, world: World, version: int) -> None:
    topic = world.new_topic(partitions=2)
    by_id = version >= IDS_IN_PRODUCE
    topic_id = _topic_id(ask, topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows = [
        PartitionProduceData(0, batch_of([b"one", None])),
        PartitionProduceData(1, None),
        PartitionProduceData(7, batch_of([b"nowhere"])),
    ]
    for acks in (1, -1):
        request = ProduceRequest(
            None,
            acks,
            5000,
            [TopicProduceData(topic, topic_id, rows), TopicProduceData(world.missing, world.missing_id, rows[:1])],
        )
        response = ask(request, version)
        first, absent = response.responses
        assert (first.name, first.topic_id) == (("", topic_id) if by_id else (topic, bytes(16)))
        good, empty, nowhere = first.partition_responses
        assert (good.index, good.error_code, good.base_offset) == (0, 0, 0 if acks == 1 else 2)
        assert good.log_append_time_ms == -1
        assert good.log_start_offset == (0 if version >= 5 else -1)
        assert empty.error_code == ErrorCode.INVALID_RECORD
        assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (nowhere.error_message is not None) == (version >= 8)
        assert [row.error_code for row in absent.partition_responses] == [unknown]
    assert ask(ProduceRequest(None, 1, 5000, []), version).responses == ()
    _check_produce_refusals(ask, version, topic, topic_id)


def _check_produce_refusals(ask: Ask, version: int, topic: str, topic_id: bytes) -> None:
    def code(acks: int, batch: bytes) -> int:
        data = TopicProduceData(topic, topic_id, [PartitionProduceData(0, batch)])
        answer = ask(ProduceRequest(None, acks, 5000, [data]), version)
        error_code: int = answer.responses[0].partition_responses[0].error_code
        return error_code

    assert code(5, batch_of([b"x"])) == ErrorCode.INVALID_REQUIRED_ACKS
    zstd = code(1, batch_of([b"x"], compression=4))
    assert zstd == (ErrorCode.NONE if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    assert code(1, batch_of([b"x"])[:-1] + b"?") == ErrorCode.CORRUPT_MESSAGE
    assert code(1, batch_of([b"x" * 1_100_000])) == ErrorCode.MESSAGE_TOO_LARGE


def check_fetch(ask: Ask, world: World, version: int) -> None:
    by_id = version >= IDS_IN_FETCH
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows = [_fetch_row(0, 1), _fetch_row(1, 0), _fetch_row(9, 0), _fetch_row(0, 99)]
    for isolation_level in (0, 1):
        request = FetchRequest(
            max_wait_ms=10,
            min_bytes=1,
            isolation_level=isolation_level,
            topics=[
                FetchTopic(world.topic, world.topic_id, rows),
                FetchTopic(world.missing, world.missing_id, rows[:1]),
            ],
        )
        response = ask(request, version)
        assert (response.error_code, response.session_id) == (0, 0)
        found, absent = response.responses
        assert (found.topic, found.topic_id) == (("", world.topic_id) if by_id else (world.topic, bytes(16)))
        data, empty, nowhere, beyond = found.partitions
        assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 3, 3)
        assert [record.value for record in records_in(data.records)] == [b"a", b"b", b"c"]
        assert (data.aborted_transactions is None) == (isolation_level == 0)
        assert (empty.error_code, empty.high_watermark, bytes(empty.records)) == (0, 0, b"")
        assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert [row.error_code for row in absent.partitions] == [unknown]
    assert ask(FetchRequest(max_wait_ms=10, min_bytes=1), version).responses == ()
    if version >= 7:
        _check_sessions(ask, world, version)


def _check_sessions(ask: Ask, world: World, version: int) -> None:
    topic = FetchTopic(world.topic, world.topic_id, [_fetch_row(0, 0), _fetch_row(1, 0)])
    opened = ask(FetchRequest(max_wait_ms=1, min_bytes=1, session_epoch=0, topics=[topic]), version)
    assert opened.session_id > 0
    session = {"max_wait_ms": 1, "min_bytes": 1, "session_id": opened.session_id}
    moved = FetchTopic(world.topic, world.topic_id, [_fetch_row(0, 3)])
    assert ask(FetchRequest(**session, session_epoch=1, topics=[moved]), version).responses == ()
    forget = ForgottenTopic(world.topic, world.topic_id, [1])
    assert ask(FetchRequest(**session, session_epoch=2, forgotten_topics_data=[forget]), version).error_code == 0
    wrong = ask(FetchRequest(**session, session_epoch=9), version)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert ask(FetchRequest(**session, session_epoch=-1), version).error_code == 0
    gone = ask(FetchRequest(**session, session_epoch=3), version)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def _fetch_row(partition: int, offset: int) -> FetchPartition:
    return FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1_000_000)


def check_describe_hot_keys(ask: Ask, world: World, version: int) -> None:
    response = ask(DescribeHotKeysRequest(world.topic, [0, 9], 1_000, 5), version)
    absent, found = sorted(response.partitions, key=lambda row: row.error_code, reverse=True)
    assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (found.error_code, found.first_offset, found.next_offset, found.records_error) == (0, 0, 3, 0)
    assert found.records == found.keyless_records + sum(row.records for row in found.keys) == 3
    assert found.size_bytes == found.keyless_bytes + sum(row.size_bytes for row in found.keys)
    (last,) = ask(DescribeHotKeysRequest(world.topic, [0], 1, 5), version).partitions
    assert (last.first_offset, last.records) == (2, 1)
    missing = ask(DescribeHotKeysRequest(world.missing, None, 1, 1), version)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def check_list_offsets(ask: Ask, world: World, version: int) -> None:
    first = world.first_timestamp
    wanted = {
        -1: (0, -1, 3),
        -2: (0, -1, 0),
        first: (0, first, 0),
        first + 1: (0, first + 10, 1),
        first + 11: (0, -1, -1),
    }
    for timestamp, since, expected in (
        (-3, 7, (0, first + 10, 1)),
        (-4, 8, (0, -1, 0)),
        (-5, 9, (0, -1, -1)),
        (-6, 11, (0, -1, -1)),
        (-77, 99, (0, -1, -1)),
    ):
        wanted[timestamp] = expected if version >= since else (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    for isolation_level in (0, 1) if version >= 2 else (0,):
        for timestamp, expected in wanted.items():
            rows = [ListOffsetsPartition(0, -1, timestamp), ListOffsetsPartition(9, -1, timestamp)]
            topics = [ListOffsetsTopic(world.topic, rows), ListOffsetsTopic(world.missing, rows[:1])]
            response = ask(ListOffsetsRequest(-1, isolation_level, topics), version)
            found, nowhere = response.topics[0].partitions
            assert (found.error_code, found.timestamp, found.offset) == expected, timestamp
            nothing = expected[0] or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert nowhere.error_code == nothing
            assert response.topics[1].partitions[0].error_code == nothing
    assert ask(ListOffsetsRequest(-1, 0, []), version).topics == ()


def check_offset_for_leader_epoch(ask: Ask, world: World, version: int) -> None:
    rows = [
        OffsetForLeaderPartition(0, -1, 0),
        OffsetForLeaderPartition(0, 0, 7),
        OffsetForLeaderPartition(0, 8, 0),
        OffsetForLeaderPartition(9, -1, 0),
    ]
    topics = [OffsetForLeaderTopic(world.topic, rows), OffsetForLeaderTopic(world.missing, rows[:1])]
    response = ask(OffsetForLeaderEpochRequest(-2 if version < 3 else -1, topics), version)
    known, later, newer, nowhere = response.topics[0].partitions
    assert (known.error_code, known.leader_epoch, known.end_offset) == (0, 0, 3)
    assert (later.error_code, later.leader_epoch, later.end_offset) == (0, -1, -1)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def check_delete_records(ask: Ask, world: World, version: int) -> None:
    topic = world.new_topic()
    data = TopicProduceData(topic, bytes(16), [PartitionProduceData(0, batch_of([b"1", b"2", b"3"]))])
    ask(ProduceRequest(None, -1, 5000, [data]), 9)
    for offset, expected in ((1, (0, 1)), (0, (0, 1)), (9, (ErrorCode.OFFSET_OUT_OF_RANGE, -1)), (-1, (0, 3))):
        rows = [DeleteRecordsPartition(0, offset), DeleteRecordsPartition(5, offset)]
        response = ask(DeleteRecordsRequest([DeleteRecordsTopic(topic, rows)], 5000), version)
        found, nowhere = response.topics[0].partitions
        assert (found.error_code, found.low_watermark) == expected
        assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(DeleteRecordsRequest([], 5000), version).topics == ()


def check_init_producer_id(ask: Ask, _: World, version: int) -> None:
    ids = [ask(InitProducerIdRequest(None, 1000), version) for _ in range(2)]
    assert all(answer.error_code == 0 and answer.producer_epoch == 0 for answer in ids)
    assert ids[0].producer_id != ids[1].producer_id
    assert min(answer.producer_id for answer in ids) >= 0
    if version >= 3:
        again = ask(InitProducerIdRequest(None, 1000, ids[0].producer_id, 0), version)
        assert again.error_code == 0
        assert again.producer_id not in {answer.producer_id for answer in ids}
    assert ask(InitProducerIdRequest("", 1000), version).error_code == ErrorCode.INVALID_REQUEST


def check_describe_producers(ask: Ask, world: World, version: int) -> None:
    topics = [TopicRequest(world.topic, [0, 1, 9]), TopicRequest(world.missing, [0])]
    response = ask(DescribeProducersRequest(topics), version)
    active, quiet, nowhere = response.topics[0].partitions
    (producer,) = active.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (world.producer_id, 0, 2)
    assert producer.current_txn_start_offset == -1
    assert quiet.active_producers == ()
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic_id(ask: Ask, topic: str) -> Any:
    return ask(MetadataRequest([MetadataRequestTopic(name=topic)]), 12).topics[0].topic_id


CHECKS = {
    "produce": check_produce,
    "fetch": check_fetch,
    "list_offsets": check_list_offsets,
    "describe_hot_keys": check_describe_hot_keys,
    "offset_for_leader_epoch": check_offset_for_leader_epoch,
    "delete_records": check_delete_records,
    "init_producer_id": check_init_producer_id,
    "describe_producers": check_describe_producers,
}
