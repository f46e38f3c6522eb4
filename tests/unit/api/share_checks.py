"""What each API of share groups must answer, whatever the version."""

from __future__ import annotations

import time
from typing import Any

from api_world import Ask, World, fresh_name

from penstock.core.share.state import NO_COUNT, NO_OFFSET, ShareKey
from penstock.model.errors import ErrorCode
from penstock.wire.messages import read_share_group_state as reading
from penstock.wire.messages import read_share_group_state_summary as summing
from penstock.wire.messages import write_share_group_state as writing
from penstock.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteStateData,
)
from penstock.wire.messages.delete_share_group_state import PartitionData as DeletedPartition
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from penstock.wire.messages.initialize_share_group_state import PartitionData as InitializedPartition
from penstock.wire.messages.settle_share_record import SettleShareRecordRequest
from penstock.wire.messages.share_acknowledge import AcknowledgementBatch as Said
from penstock.wire.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest
from penstock.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from penstock.wire.messages.take_share_records import TakeShareRecordsRequest

SHARE = 2
COUNTS_SINCE = 1


def initialized(ask: Ask, world: World, start: int = 0, state_epoch: int = 1) -> str:
    """A new group whose state of partition 0 begins at an offset."""
    group = fresh_name()
    key = ShareKey(group, world.topic_id, 0).coordinator_key
    deadline = time.monotonic() + 20
    while ask(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), 6).coordinators[0].error_code:
        assert time.monotonic() < deadline
    # The topic is in the metadata a moment before its partitions are led.
    while (error := initialize(ask, world, group, start, state_epoch).error_code) == ErrorCode.NOT_COORDINATOR:
        assert time.monotonic() < deadline
    assert error == 0
    return group


def initialize(ask: Ask, world: World, group: str, start: int, state_epoch: int) -> Any:
    topic = InitializeStateData(world.topic_id, [InitializedPartition(0, state_epoch, start)])
    return _row(ask(InitializeShareGroupStateRequest(group, [topic]), 0))


def summary(ask: Ask, world: World, group: str, version: int = 1) -> Any:
    topic = summing.ReadStateSummaryData(world.topic_id, [summing.PartitionData(0, -1)])
    return _row(ask(summing.ReadShareGroupStateSummaryRequest(group, [topic]), version))


def _row(response: Any) -> Any:
    return response.results[0].partitions[0]


def check_initialize(ask: Ask, world: World, version: int) -> None:
    assert version == 0
    group = initialized(ask, world, 5, 3)
    assert summary(ask, world, group).start_offset == 5
    assert initialize(ask, world, group, 9, 2).error_code == ErrorCode.FENCED_STATE_EPOCH
    nowhere = InitializeStateData(bytes(16), [InitializedPartition(0, 1, 0)])
    assert _row(ask(InitializeShareGroupStateRequest(group, [nowhere]), 0)).error_code == ErrorCode.INVALID_REQUEST


def check_read(ask: Ask, world: World, version: int) -> None:
    group = initialized(ask, world, 5)
    topic = reading.ReadStateData(world.topic_id, [reading.PartitionData(0, 4)])
    row = _row(ask(reading.ReadShareGroupStateRequest(group, [topic]), version))
    assert (row.error_code, row.state_epoch, row.start_offset, [*row.state_batches]) == (0, 1, 5, [])
    older = topic._replace(partitions=[reading.PartitionData(0, 3)])
    refused = _row(ask(reading.ReadShareGroupStateRequest(group, [older]), version))
    assert refused.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert _row(ask(reading.ReadShareGroupStateRequest("other", [topic]), version)).error_code != 0


def check_write(ask: Ask, world: World, version: int) -> None:
    group = initialized(ask, world)
    batch = writing.StateBatch(2, 4, 2, 1)
    topic = writing.WriteStateData(world.topic_id, [writing.PartitionData(0, 1, 0, 0, 3, [batch])])
    if version < COUNTS_SINCE:
        topic = topic._replace(partitions=[topic.partitions[0]._replace(delivery_complete_count=-1)])
    assert _row(ask(writing.WriteShareGroupStateRequest(group, [topic]), version)).error_code == 0
    read = reading.ReadStateData(world.topic_id, [reading.PartitionData(0, 0)])
    row = _row(ask(reading.ReadShareGroupStateRequest(group, [read]), 0))
    assert [tuple(one) for one in row.state_batches] == [tuple(batch)]
    fenced = topic._replace(partitions=[topic.partitions[0]._replace(state_epoch=0)])
    row = _row(ask(writing.WriteShareGroupStateRequest(group, [fenced]), version))
    assert row.error_code == ErrorCode.FENCED_STATE_EPOCH


def check_summary(ask: Ask, world: World, version: int) -> None:
    group = initialized(ask, world, 7)
    row = summary(ask, world, group, version)
    assert (row.error_code, row.state_epoch, row.start_offset) == (0, 1, 7)
    assert row.delivery_complete_count == (0 if version >= COUNTS_SINCE else NO_COUNT)
    assert summary(ask, world, fresh_name(), version).error_code in (0, ErrorCode.NOT_COORDINATOR)


def check_delete(ask: Ask, world: World, version: int) -> None:
    group = initialized(ask, world, 7)
    topic = DeleteStateData(world.topic_id, [DeletedPartition(0)])
    assert _row(ask(DeleteShareGroupStateRequest(group, [topic]), version)).error_code == 0
    assert summary(ask, world, group).start_offset == NO_OFFSET
    assert _row(ask(DeleteShareGroupStateRequest(group, [topic]), version)).error_code == 0


def fetch(ask: Ask, world: World, group: str, version: int, epoch: int = 0, *partitions: int) -> Any:
    topics = [FetchTopic(world.topic_id, [FetchPartition(one) for one in partitions])] if partitions else []
    request = ShareFetchRequest(group, "member", epoch, 5_000, 1, 1_000_000, 500, 500, topics=topics)
    return ask(request, version)


def check_share_fetch(ask: Ask, world: World, version: int) -> None:
    group = initialized(ask, world)
    response = fetch(ask, world, group, version, 0, 0)
    assert (response.error_code, response.acquisition_lock_timeout_ms) == (0, 30_000)
    row = response.responses[0].partitions[0]
    assert [tuple(one) for one in row.acquired_records] == [(0, 2, 1)]
    assert len(row.records) > 0
    assert fetch(ask, world, group, version, 7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert fetch(ask, world, fresh_name(), version, 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert fetch(ask, world, group, version, -1).error_code == 0
    assert fetch(ask, world, group, version, 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def check_share_acknowledge(ask: Ask, world: World, version: int) -> None:
    group = initialized(ask, world)
    assert fetch(ask, world, group, version, 0, 0).error_code == 0
    batch = Said(0, 2, [1])
    topic = AcknowledgeTopic(world.topic_id, [AcknowledgePartition(0, [batch])])
    request = ShareAcknowledgeRequest(group, "member", 1, topics=[topic])
    response = ask(request, version)
    assert response.responses[0].partitions[0].error_code == 0
    assert (summary(ask, world, group).start_offset, summary(ask, world, group).delivery_complete_count) == (3, 0)
    again = ask(request._replace(share_session_epoch=2), version)
    assert again.responses[0].partitions[0].error_code == ErrorCode.INVALID_RECORD_STATE
    later = topic._replace(partitions=[AcknowledgePartition(0, [Said(3, 3, [1])])])
    refused = ask(request._replace(share_session_epoch=3, topics=[later]), version)
    assert refused.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert ask(request._replace(share_session_epoch=-1, topics=[]), version).error_code == 0


def take(group: str, world: World, max_records: int = 2) -> TakeShareRecordsRequest:
    return TakeShareRecordsRequest(group, "member", world.topic_id, [0], max_records, 1_000_000, 10_000)


def check_take_share_records(ask: Ask, world: World, version: int) -> None:
    group = initialized(ask, world)
    ready = ask(take(group, world, 0), version)
    assert [(row.partition_index, len(row.acquired_records)) for row in ready.partitions] == [(0, 0)]
    response = ask(take(group, world), version)
    assert (response.error_code, response.lock_ms) == (0, 30_000)
    (row,) = response.partitions
    assert [tuple(one) for one in row.acquired_records] == [(0, 1, 1)]
    assert len(row.records) > 0
    assert ask(take(group, world)._replace(member_id=""), version).error_code == ErrorCode.INVALID_REQUEST
    assert ask(take(group, world)._replace(offset_reset="soon"), version).error_code == ErrorCode.INVALID_REQUEST
    elsewhere = ask(take(group, world)._replace(partitions=[9]), version).partitions[0]
    assert elsewhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def check_settle_share_record(ask: Ask, world: World, version: int) -> None:
    group = initialized(ask, world)
    assert ask(take(group, world), 0).error_code == 0
    request = SettleShareRecordRequest(group, "member", world.topic_id, 0, 0, 1, 1)
    for wrong in ({"member_id": "other"}, {"delivery_count": 2}, {"offset": 2}):
        assert ask(request._replace(**wrong), version).error_code == ErrorCode.INVALID_RECORD_STATE
    for wrong in ({"kind": 0}, {"kind": 5}, {"member_id": ""}):
        assert ask(request._replace(**wrong), version).error_code == ErrorCode.INVALID_REQUEST
    missing = ask(request._replace(topic_id=bytes(15) + b"x"), version)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert ask(request, version) == (0, 0, None, 30_000)
    assert ask(request, version).error_message == "it was settled already"
    assert summary(ask, world, group).start_offset == 1


CHECKS = {
    "take_share_records": check_take_share_records,
    "settle_share_record": check_settle_share_record,
    "share_fetch": check_share_fetch,
    "share_acknowledge": check_share_acknowledge,
    "initialize_share_group_state": check_initialize,
    "read_share_group_state": check_read,
    "write_share_group_state": check_write,
    "delete_share_group_state": check_delete,
    "read_share_group_state_summary": check_summary,
}
