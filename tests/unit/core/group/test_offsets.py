"""Committed offsets: who may commit, what is kept, what expires, and what transactions leave pending."""

from __future__ import annotations

import pytest

from penstock.core.group.contract import Caller, GroupSettings
from penstock.core.group.offsets import offsets
from penstock.core.group.offsets.offsets import HISTORY_LENGTH, Commit
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.wire.frame import encode_coordinator_key, encode_versioned
from penstock.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import OffsetCommitRequestTopic
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from support.group_clients import GROUP, commit_request, join_request, joined_members, stable_members, subscription
from support.worlds.group_world import GroupWorld

DAY_MS = 86_400_000
CALLER = Caller("client", "/127.0.0.1", 9)


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld(GroupSettings(initial_rebalance_delay_ms=1000, offset_metadata_max_bytes=10))


def errors(response: object) -> list[int]:
    return [row.error_code for topic in response.topics for row in topic.partitions]  # type: ignore[attr-defined]


def commit(world: GroupWorld, offsets: dict[tuple[str, int], int], **fields: object) -> list[int]:
    return errors(world.answer("offset_commit", commit_request(offsets, **fields)))  # type: ignore[arg-type]


def fetch(world: GroupWorld, *wanted: tuple[str, int], require_stable: bool = False) -> list[tuple[int, int]]:
    topics = [OffsetFetchRequestTopics(topic, partition_indexes=[partition]) for topic, partition in wanted]
    found = world.shard.offset_fetch_group(OffsetFetchRequestGroup(GROUP, topics=topics), require_stable, CALLER)
    return [(row.committed_offset, row.error_code) for topic in found.topics for row in topic.partitions]


def replay_pending(world: GroupWorld, producer_id: int, partition: int, offset: int, at: int) -> None:
    key, value = OffsetCommitKey(GROUP, "t", partition), OffsetCommitValue(offset)
    world.shard.replay(key, value, at, producer_id)


def delete_request(*places: tuple[str, int]) -> OffsetDeleteRequest:
    rows = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(index)]) for topic, index in places]
    return OffsetDeleteRequest(GROUP, rows)


def expire(world: GroupWorld) -> None:
    for effects in world.shard.expire_offsets(world.now_ms):
        world.perform(effects)


def test_what_is_committed_is_kept_as_it_came(world: GroupWorld) -> None:
    assert commit(world, {("t", 3): 42}, metadata="why", leader_epoch=7) == [ErrorCode.NONE]
    assert commit(world, {("u", 0): 1}, metadata=None) == [ErrorCode.NONE]
    for shard in (world.shard, world.replayed()):
        found = shard.offset_fetch_group(OffsetFetchRequestGroup(GROUP, topics=None), False, CALLER)
        rows = {topic.name: [tuple(row) for row in topic.partitions] for topic in found.topics}
        assert rows == {"t": [(3, 42, 7, "why", 0)], "u": [(0, 1, -1, "", 0)]}


def test_an_offset_that_was_never_committed_is_not_an_error(world: GroupWorld) -> None:
    assert fetch(world, ("t", 0)) == [(-1, ErrorCode.NONE)]
    everything = world.shard.offset_fetch_group(OffsetFetchRequestGroup("nobody", topics=None), False, CALLER)
    assert (list(everything.topics), everything.error_code) == ([], ErrorCode.NONE)
    commit(world, {("t", 0): 5})
    assert fetch(world, ("t", 1), ("u", 0), ("t", 0)) == [(-1, 0), (-1, 0), (5, 0)]


def test_metadata_that_is_too_long_spoils_its_partition_only(world: GroupWorld) -> None:
    long, short = commit_request({("t", 0): 1}, metadata="x" * 11), commit_request({("t", 1): 2}, metadata="x" * 10)
    request = long._replace(topics=[*long.topics, *short.topics])
    assert errors(world.answer("offset_commit", request)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert fetch(world, ("t", 0), ("t", 1)) == [(-1, 0), (2, 0)]


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_generation_needs_a_group(world: GroupWorld, version: int, error: ErrorCode) -> None:
    response = world.answer("offset_commit", commit_request({("t", 0): 1}, "m", 3), version)
    assert errors(response) == [error]
    assert not world.shard.list_groups()


def test_members_commit_in_their_generation(world: GroupWorld) -> None:
    (member_id,) = stable_members(world, join_request())
    offsets = {("t", 0): 1}
    assert commit(world, offsets, member_id=member_id, generation=1) == [ErrorCode.NONE]
    assert commit(world, offsets, member_id=member_id, generation=0) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(world, offsets, member_id=member_id, generation=-1) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(world, offsets, member_id="other", generation=1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(world, offsets) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(world, offsets, member_id=member_id, generation=1, group_instance_id="i") == [
        ErrorCode.UNKNOWN_MEMBER_ID
    ]


def test_nothing_is_committed_before_the_assignment(world: GroupWorld) -> None:
    (member_id,) = joined_members(world, join_request())
    assert commit(world, {("t", 0): 1}, member_id=member_id, generation=1) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_an_offset_of_a_former_topic_does_not_count(world: GroupWorld) -> None:
    request = commit_request({("t", 0): 9})
    row = OffsetCommitRequestTopic("t", b"1" * 16, request.topics[0].partitions)
    world.answer("offset_commit", request._replace(topics=[row]), 10)

    def fetched(topic_id: bytes) -> int:
        topics = [OffsetFetchRequestTopics("t", topic_id, [0])]
        found = world.shard.offset_fetch_group(OffsetFetchRequestGroup(GROUP, topics=topics), False, CALLER)
        return int(found.topics[0].partitions[0].committed_offset)

    assert [fetched(b"1" * 16), fetched(b"2" * 16), fetched(bytes(16))] == [9, -1, 9]


def test_the_last_commits_are_remembered(world: GroupWorld) -> None:
    for offset in range(HISTORY_LENGTH + 5):
        commit(world, {("t", 0): offset})
        world.advance(1000)
    (progress,) = world.shard.committed(GROUP).values()
    assert progress.committed.offset == HISTORY_LENGTH + 4
    assert [row.offset for row in progress.history] == list(range(5, HISTORY_LENGTH + 5))
    assert progress.history[-1] == Commit(HISTORY_LENGTH + 4, world.now_ms - 1000)
    commit(world, {("t", 1): 7})
    assert world.shard.committed(GROUP)[TopicPartition("t", 1)].history == (Commit(7, world.now_ms),)


def test_a_pending_offset_is_not_stable(world: GroupWorld) -> None:
    commit(world, {("t", 0): 1})
    replay_pending(world, 77, 0, 5, at=10)
    replay_pending(world, 77, 1, 6, at=11)
    unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert fetch(world, ("t", 0), ("t", 1), require_stable=True) == [unstable, unstable]
    assert fetch(world, ("t", 0), ("t", 1)) == [(1, 0), (-1, 0)]
    world.shard.replay_end_transaction(77, True)
    assert fetch(world, ("t", 0), ("t", 1), require_stable=True) == [(5, 0), (6, 0)]


def test_an_aborted_transaction_leaves_nothing(world: GroupWorld) -> None:
    commit(world, {("t", 0): 1})
    replay_pending(world, 77, 0, 5, at=10)
    world.shard.replay_end_transaction(77, False)
    world.shard.replay_end_transaction(77, True)
    assert fetch(world, ("t", 0), require_stable=True) == [(1, 0)]


def test_a_later_commit_wins_over_an_earlier_pending_one(world: GroupWorld) -> None:
    replay_pending(world, 77, 0, 5, at=10)
    world.shard.replay(OffsetCommitKey(GROUP, "t", 0), OffsetCommitValue(8), 11)
    world.shard.replay_end_transaction(77, True)
    assert fetch(world, ("t", 0)) == [(8, 0)]


def test_deletion_reaches_pending_offsets(world: GroupWorld) -> None:
    commit(world, {("t", 0): 1})
    replay_pending(world, 77, 1, 5, at=10)
    assert world.delete_group(GROUP) == ErrorCode.NONE
    assert not world.shard.list_groups()
    world.shard.replay_end_transaction(77, True)
    assert fetch(world, ("t", 0), ("t", 1)) == [(-1, 0), (-1, 0)]


def test_pending_offsets_can_be_deleted_one_by_one(world: GroupWorld) -> None:
    replay_pending(world, 77, 0, 5, at=10)
    replay_pending(world, 77, 1, 6, at=11)
    assert errors(world.answer("offset_delete", delete_request(("t", 0)))) == [ErrorCode.NONE]
    world.shard.replay_end_transaction(77, True)
    assert fetch(world, ("t", 0), ("t", 1)) == [(-1, 0), (6, 0)]


def test_transactions_end_one_by_one(world: GroupWorld) -> None:
    replay_pending(world, 77, 0, 5, at=10)
    replay_pending(world, 88, 0, 6, at=11)
    world.shard.replay_end_transaction(88, False)
    assert fetch(world, ("t", 0), require_stable=True) == [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]
    world.shard.replay_end_transaction(77, True)
    assert fetch(world, ("t", 0), require_stable=True) == [(5, 0)]


def test_a_group_with_an_open_transaction_stays(world: GroupWorld) -> None:
    replay_pending(world, 77, 1, 5, at=10)
    expire(world)
    assert [row.group_id for row in world.shard.list_groups()] == [GROUP]
    world.shard.replay_end_transaction(77, False)
    expire(world)
    assert not world.shard.list_groups()


def test_offsets_in_use_are_not_deleted(world: GroupWorld) -> None:
    (member_id,) = stable_members(world, join_request())
    commit(world, {("t", 0): 1, ("u", 0): 2}, member_id=member_id, generation=1)
    response = world.answer("offset_delete", delete_request(("t", 0), ("u", 0), ("u", 1)))
    assert errors(response) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE]
    assert fetch(world, ("t", 0), ("u", 0)) == [(1, 0), (-1, 0)]
    assert world.delete_group(GROUP) == ErrorCode.NON_EMPTY_GROUP


def test_offsets_may_be_in_use_where_topics_are_unknown(world: GroupWorld) -> None:
    stable_members(world, join_request(metadata=b"\0"))
    assert errors(world.answer("offset_delete", delete_request(("t", 0)))) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_other_protocols_are_deleted_without_members_only(world: GroupWorld) -> None:
    (member_id,) = stable_members(world, join_request(protocol_type="connect"))
    assert world.answer("offset_delete", delete_request(("t", 0))).error_code == ErrorCode.NON_EMPTY_GROUP
    world.answer("leave_group", LeaveGroupRequest(GROUP, members=[MemberIdentity(member_id)]), 5)
    assert world.answer("offset_delete", delete_request(("t", 0))).error_code == ErrorCode.NONE
    assert world.delete_group(GROUP) == ErrorCode.NONE
    assert world.answer("offset_delete", delete_request(("t", 0))).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.delete_group(GROUP) == ErrorCode.GROUP_ID_NOT_FOUND


def test_deleted_topics_take_their_offsets_along(world: GroupWorld) -> None:
    commit(world, {("t", 0): 1, ("t", 1): 1, ("tt", 0): 2})
    world.answer("offset_commit", commit_request({("t", 0): 3}, group_id="h"))
    replay_pending(world, 77, 5, 5, at=10)
    loaded = GroupWorld()
    assert not loaded.shard.load(world.log)
    loaded.shard.loaded(0)
    world.perform(world.shard.topics_changed(set(), {"t"}))
    loaded.perform(loaded.shard.topics_changed(set(), {"t"}))
    for shard in (world.shard, loaded.shard):
        assert set(shard.committed(GROUP)) == {TopicPartition("tt", 0)}
        assert not shard.committed("h")
    world.shard.replay_end_transaction(77, True)
    assert fetch(world, ("t", 5)) == [(-1, 0)]


def test_the_retention_counts_from_when_the_group_became_empty(world: GroupWorld) -> None:
    (member_id,) = stable_members(world, join_request())
    commit(world, {("t", 0): 1}, member_id=member_id, generation=1)
    for _ in range(10):
        world.advance(8000)
        commit(world, {("u", 0): 2}, member_id=member_id, generation=1)
    world.answer("leave_group", LeaveGroupRequest(GROUP, members=[MemberIdentity(member_id)]), 5)
    world.advance(7 * DAY_MS - 1)
    expire(world)
    assert fetch(world, ("t", 0)) == [(1, 0)]
    world.reload()
    world.advance(1)
    expire(world)
    assert not world.shard.list_groups()
    assert not world.replayed(latest_only=True).list_groups()


def test_a_stable_group_loses_offsets_of_topics_it_no_longer_reads(world: GroupWorld) -> None:
    for protocol_type, left in (("consumer", [(1, 0), (-1, 0)]), ("connect", [(1, 0), (2, 0)])):
        world = GroupWorld(GroupSettings(initial_rebalance_delay_ms=0, offsets_retention_ms=1000))
        (member_id,) = stable_members(world, join_request(protocol_type=protocol_type, metadata=subscription("t")))
        commit(world, {("t", 0): 1, ("u", 0): 2}, member_id=member_id, generation=1)
        world.advance(1000)
        expire(world)
        assert fetch(world, ("t", 0), ("u", 0)) == left


def test_a_retention_requested_with_the_commit_counts_instead(world: GroupWorld) -> None:
    world.answer("offset_commit", commit_request({("t", 0): 1}, retention_time_ms=5000), 4)
    world.advance(4999)
    world.reload()
    expire(world)
    assert fetch(world, ("t", 0)) == [(1, 0)]
    world.advance(1)
    expire(world)
    assert fetch(world, ("t", 0)) == [(-1, 0)]


def test_loading_hands_back_what_is_not_an_offset_it_can_read() -> None:
    world = GroupWorld()
    key = encode_coordinator_key(OffsetCommitKey(GROUP, "t", 0))
    group_record = (
        encode_coordinator_key(GroupMetadataKey("h")),
        encode_versioned(GroupMetadataValue("consumer", 4), 3),
    )
    newer = (encode_coordinator_key(OffsetCommitKey(GROUP, "t", 1)), b"\0\x09whatever")
    value = encode_versioned(OffsetCommitValue(6), 3)
    broken = encode_coordinator_key(OffsetCommitKey(GROUP, "t", 2)), value[:-3]
    records = [(key, encode_versioned(OffsetCommitValue(5), 1)), group_record, newer, broken, (key, value)]
    assert world.shard.load(records) == [group_record, newer]
    world.perform(world.shard.loaded(world.now_ms))
    assert [row.group_id for row in world.shard.list_groups()] == [GROUP]
    assert fetch(world, ("t", 0), ("t", 2)) == [(6, 0), (-1, 0)]


def test_what_is_loaded_can_be_committed_over() -> None:
    world = GroupWorld()
    key = encode_coordinator_key(OffsetCommitKey(GROUP, "t", 0))
    world.shard.load([(key, encode_versioned(OffsetCommitValue(5, commit_timestamp=3), 4))])
    world.perform(world.shard.loaded(world.now_ms))
    assert commit(world, {("t", 0): 6}) == [ErrorCode.NONE]
    (progress,) = world.shard.committed(GROUP).values()
    assert progress.history == (Commit(5, 3), Commit(6, world.now_ms))


def test_topics_that_are_deleted_together_are_looked_for_together(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's thousand topics, and the million offsets of others, must not be multiplied."""
    value = encode_versioned(OffsetCommitValue(1), 4)
    keys = [OffsetCommitKey("gone", f"t{number}", 0) for number in range(50)]
    keys += [OffsetCommitKey("kept", "kept", number) for number in range(50)]
    # As after loading: no group has been asked for yet.
    assert not world.shard.load((encode_coordinator_key(key), value) for key in keys)
    looked_at = 0
    real = offsets.encoded_topic

    def counted(key: bytes) -> bytes:
        nonlocal looked_at
        looked_at += 1
        return real(key)

    monkeypatch.setattr(offsets, "encoded_topic", counted)
    gone = [f"t{number}" for number in range(50)] + [f"other{number}" for number in range(1_000)]
    deleted = {(record.key.topic, record.key.partition) for record in world.shard.topics_changed((), gone).records}
    assert deleted == {(f"t{number}", 0) for number in range(50)}
    assert looked_at <= 100
