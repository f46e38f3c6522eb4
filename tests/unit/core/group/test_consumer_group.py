"""The group itself: who may commit, what describes it, and how replay copes with what compaction leaves."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.consumer.members import ConsumerMember, MemberState
from penstock.core.group.consumer.records import (
    assignment_record,
    epoch_record,
    member_record,
    member_tombstones,
    regex_record,
    target_epoch_record,
    target_record,
)
from penstock.core.group.contract import Record
from penstock.core.group.group import GroupKind
from penstock.core.group.modern.group import GroupState
from penstock.core.group.subscription.topics import ResolvedRegex
from penstock.model.errors import ErrorCode
from penstock.wire.messages import consumer_group_records as records
from penstock.wire.messages.consumer_group_describe import Assignment, TopicPartitions
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.list_groups import ListedGroup
from support.worlds.consumer_world import GROUP, ConsumerWorld

T = b"t" * 16
OLD = records.ClassicMemberMetadata(10_000, (records.ClassicProtocol("range", b"\0\0"),))


def member(member_id: str = "m", epoch: int = 3, **fields: Any) -> ConsumerMember:
    return ConsumerMember(member_id, epoch, epoch, **fields)


def group(*members: ConsumerMember, epoch: int = 3) -> ConsumerGroup:
    made = ConsumerGroup(GROUP)
    play(made, epoch_record(GROUP, epoch, 9), target_epoch_record(GROUP, 3))
    for one in members:
        play(made, member_record(GROUP, one), assignment_record(GROUP, one))
    return made


def play(made: ConsumerGroup, *written: Record) -> None:
    for record in written:
        made.replay(record.key, record.value)


@pytest.mark.parametrize(
    ("member_id", "epoch", "api_version", "transactional", "error"),
    [
        ("m", 3, 9, False, ErrorCode.NONE),
        ("m", 2, 9, False, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 4, 9, False, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", -1, 9, False, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 3, 8, False, ErrorCode.UNSUPPORTED_VERSION),
        ("m", 3, 3, True, ErrorCode.NONE),
        ("old", 3, 2, False, ErrorCode.NONE),
        ("old", 2, 9, False, ErrorCode.ILLEGAL_GENERATION),
        ("", -1, 9, False, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 5, True, ErrorCode.NONE),
        ("who", 3, 9, False, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_commit(member_id: str, epoch: int, api_version: int, transactional: bool, error: ErrorCode) -> None:
    made = group(member(), member("old", classic=OLD))
    assert made.check_offset_commit(member_id, None, epoch, api_version, transactional=transactional) is error


def test_any_client_without_an_epoch_may_commit_to_an_empty_group() -> None:
    assert group().check_offset_commit("", None, -1, 2, transactional=False) is ErrorCode.NONE
    assert group().check_offset_commit("m", None, 3, 9, transactional=False) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, ErrorCode.NONE),
        ("m", 3, ErrorCode.NONE),
        ("m", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("who", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 3, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_fetch_offsets(member_id: str | None, epoch: int, error: ErrorCode) -> None:
    assert group(member()).check_offset_fetch(member_id, epoch) is error


def test_only_an_empty_group_may_be_deleted() -> None:
    assert group(member()).check_delete() is ErrorCode.NON_EMPTY_GROUP
    assert group().check_delete() is ErrorCode.NONE
    assert group(member()).check_offset_delete() is ErrorCode.NONE
    assert group(member()).retention_starts_ms(17) == 17


def test_states() -> None:
    assert group().state is GroupState.EMPTY
    assert group(member(), epoch=4).state is GroupState.ASSIGNING
    assert group(member(epoch=2)).state is GroupState.RECONCILING
    assert group(member(state=MemberState.UNRELEASED_PARTITIONS)).state is GroupState.RECONCILING
    assert group(member()).state is GroupState.STABLE
    assert group(member()).listed() == ListedGroup(GROUP, "consumer", "Stable", "consumer")
    assert group().kind is GroupKind.CONSUMER


def test_a_group_reads_what_members_name_and_what_patterns_mean() -> None:
    made = group(member(subscribed_topic_names=frozenset({"a"}), subscribed_topic_regex="b.*"))
    play(made, regex_record(GROUP, "b.*", ResolvedRegex(frozenset({"bb"}))))
    assert [made.is_subscribed_to(name) for name in ("a", "bb", "c")] == [True, True, False]


def test_a_partition_that_moved_belongs_to_the_later_record_whatever_is_missing_in_between() -> None:
    """While a log is compacted, the record that shows how a member let go may be gone before the one that took."""
    made = group(member("a", assigned={T: frozenset({1, 2})}))
    later = member("b", 4, assigned={T: frozenset({2})})
    play(made, member_record(GROUP, later), assignment_record(GROUP, later))
    assert made.is_owned(T, 2)
    play(made, assignment_record(GROUP, member("a", 4, assigned={T: frozenset({1})})))
    assert made.is_owned(T, 2)
    assert made.is_owned(T, 1)
    play(made, *member_tombstones(GROUP, "b"))
    assert not made.is_owned(T, 2)
    play(made, *member_tombstones(GROUP, "a"))
    assert not made._owners
    assert made.is_empty


def test_a_member_holds_what_it_is_to_give_up() -> None:
    made = group(member(assigned={T: frozenset({1})}, pending_revocation={T: frozenset({2})}))
    assert made.is_owned(T, 1)
    assert made.is_owned(T, 2)
    assert not made.is_owned(T, 3)


def test_tombstones_of_members_that_are_not_there_mean_nothing() -> None:
    made = group()
    play(made, *member_tombstones(GROUP, "nobody"))
    assert made.is_empty


def test_the_tombstone_of_a_former_holder_leaves_its_instance_to_the_next_one() -> None:
    made = group(member("a", instance_id="i"))
    play(made, member_record(GROUP, member("b", instance_id="i")))
    play(made, *member_tombstones(GROUP, "a"))
    assert made.static_members == {"i": "b"}


def test_counts_follow_the_members() -> None:
    made = group(
        member("a", subscribed_topic_names=frozenset({"t", "u"}), server_assignor="range", classic=OLD),
        member("b", subscribed_topic_names=frozenset({"t"}), subscribed_topic_regex="x"),
    )
    assert made.name_counts == {"t": 2, "u": 1}
    assert made.assignor_counts == {"range": 1}
    assert made.regex_counts == {"x": 1}
    assert (made.classic_count, made.classic_protocol_counts) == (1, {"range": 1})
    play(made, *member_tombstones(GROUP, "a"))
    assert made.name_counts == {"t": 1}
    assert not made.assignor_counts
    assert (made.classic_count, made.classic_protocol_counts) == (0, {})


def test_tombstones_delete_everything() -> None:
    made = group(member(subscribed_topic_regex="x"))
    play(made, target_record(GROUP, "m", {T: frozenset({1})}), regex_record(GROUP, "x", ResolvedRegex()))
    world = ConsumerWorld()
    world.shard._groups[GROUP] = made
    for record in made.tombstones():
        assert record.value is None
        world.shard.replay(record.key, None)
    assert not world.shard.list_groups()
    assert not made.members
    assert not made.targets
    assert not made.resolved_regexes


def test_records_of_a_group_take_the_place_of_one_that_only_has_offsets() -> None:
    world = ConsumerWorld()
    first = epoch_record(GROUP, 1, 0)
    world.shard.replay(first.key, first.value)
    assert world.group().epoch == 1
    for tombstone in group().tombstones():
        world.shard.replay(tombstone.key, None)
        world.shard.replay(tombstone.key, None)
    assert not world.shard.list_groups()


def test_describe_leaves_out_topics_that_are_gone() -> None:
    world = ConsumerWorld(t=1, u=1)
    request = ConsumerGroupHeartbeatRequest(
        GROUP, "a", 0, "i", "r", 1_000, ["t", "u"], topic_partitions=(), server_assignor="range"
    )
    world.answer("consumer.heartbeat", request, 1, "me")
    topic_id = world.topics.ids["t"]
    world.put_topic("u", 0)
    described = world.shard.consumer.describe(GROUP)
    (shown,) = described.members
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 1, 1)
    assert described.assignor_name == "range"
    assert (shown.member_id, shown.instance_id, shown.rack_id, shown.member_epoch) == ("a", "i", "r", 1)
    assert (shown.client_id, shown.client_host) == ("me", "/127.0.0.1")
    assert (shown.subscribed_topic_names, shown.subscribed_topic_regex, shown.member_type) == (["t", "u"], "", 1)
    assert shown.assignment == shown.target_assignment == Assignment([TopicPartitions(topic_id, "t", [0])])
