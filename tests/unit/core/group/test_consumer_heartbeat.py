"""ConsumerGroupHeartbeat: what is refused, what a response contains, and what is written."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.consumer.members import MemberState
from penstock.core.group.consumer.subscription import REGEXES_MAX
from penstock.core.group.contract import GroupSettings
from penstock.model.errors import ErrorCode
from penstock.wire.messages import consumer_group_records as records
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from support.worlds.consumer_world import GROUP, ConsumerWorld

JOIN = ConsumerGroupHeartbeatRequest(
    GROUP, "a", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=["t"], topic_partitions=()
)


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld(t=2)


def beat(world: ConsumerWorld, request: Any = JOIN, version: int = 1, **changes: Any) -> ConsumerGroupHeartbeatResponse:
    response = world.answer("consumer.heartbeat", request._replace(**changes), version)
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    return response


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"group_id": ""}, "GroupId"),
        ({"group_id": " "}, "GroupId"),
        ({"member_id": ""}, "MemberId"),
        ({"instance_id": ""}, "InstanceId"),
        ({"rack_id": " "}, "RackId"),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs"),
        ({"topic_partitions": None}, "TopicPartitions"),
        ({"topic_partitions": [TopicPartitions(b"t" * 16, [1])]}, "TopicPartitions"),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames"),
        ({"member_epoch": -2}, "InstanceId"),
        ({"member_epoch": -3}, "MemberEpoch"),
        ({"member_epoch": -1, "member_id": ""}, "MemberId"),
    ],
)
def test_requests_that_no_group_could_serve_are_invalid(
    world: ConsumerWorld, changes: dict[str, Any], word: str
) -> None:
    response = beat(world, **changes)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert word in (response.error_message or "")
    assert not world.log


def test_version_0_leaves_the_member_id_to_the_coordinator(world: ConsumerWorld) -> None:
    response = beat(world, version=0, member_id="")
    assert response.error_code == ErrorCode.NONE
    assert len(response.member_id or "") == 22
    assert not (response.member_id or "").startswith("-")
    refused = beat(world, version=0, member_id="", member_epoch=3)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_a_subscription_may_be_empty_and_may_be_a_pattern(world: ConsumerWorld) -> None:
    assert beat(world, subscribed_topic_names=[]).error_code == ErrorCode.NONE
    by_pattern = beat(world, member_id="b", subscribed_topic_names=None, subscribed_topic_regex="t")
    assert by_pattern.assignment is not None
    assert world.shown(by_pattern.assignment.topic_partitions) == "t/0,1"


@pytest.mark.parametrize("regex", ["(", "a{3,2}", "(?=a)", "a" * 5_000, "(a{900}){900}"])
def test_patterns_that_cannot_be_used_are_refused(world: ConsumerWorld, regex: str) -> None:
    response = beat(world, subscribed_topic_regex=regex)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not world.log


def test_a_group_has_only_so_many_patterns(world: ConsumerWorld) -> None:
    """All of them are resolved again together, and each is a record with the names that it matches."""

    def join(number: int) -> ErrorCode:
        pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": f"t|{number}"}
        return ErrorCode(beat(world, member_id=f"m{number}", **pattern).error_code)

    assert {join(number) for number in range(REGEXES_MAX)} == {ErrorCode.NONE}
    assert join(REGEXES_MAX) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join(0) is ErrorCode.NONE


def test_the_names_that_a_groups_patterns_match_count_as_metadata() -> None:
    world = ConsumerWorld(GroupSettings(metadata_bytes_max=4_096))
    for number in range(100):
        world.put_topic(f"topic-{number:010}", 1)

    def join(member: str, regex: str) -> ErrorCode:
        pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": regex}
        return ErrorCode(beat(world, member_id=member, **pattern).error_code)

    assert join("a", "topic.*") is ErrorCode.NONE
    assert join("b", "topic-.*") is ErrorCode.NONE
    assert join("c", "topic-0.*") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join("c", "topic-.*") is ErrorCode.NONE


def test_assignors_that_are_not_configured_are_refused() -> None:
    world = ConsumerWorld(GroupSettings(consumer_assignors=("range",)))
    response = beat(world, server_assignor="uniform")
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "range" in (response.error_message or "")


def test_the_answer_brings_the_assignment_until_it_is_acknowledged(world: ConsumerWorld) -> None:
    joined = beat(world)
    assert joined.assignment is not None
    assert joined.heartbeat_interval_ms == 5_000
    short = ConsumerGroupHeartbeatRequest(GROUP, "a", 1)
    assert beat(world, short).assignment == joined.assignment, "the client may have given up on the first answer"
    owned = joined.assignment.topic_partitions
    for part in ({"topic_partitions": owned}, {"rebalance_timeout_ms": 5, "subscribed_topic_names": ["t"]}):
        assert beat(world, short, **part).assignment is None
    full = {"rebalance_timeout_ms": 5, "subscribed_topic_names": ["t"], "topic_partitions": owned}
    assert beat(world, short, **full).assignment == joined.assignment
    world.put_topic("t", 3)
    changed = beat(world, short).assignment
    assert changed is not None
    assert world.shown(changed.topic_partitions) == "t/0,1,2"
    late = ConsumerGroupHeartbeatRequest(GROUP, "a", 2)
    assert beat(world, late).assignment == changed
    assert beat(world, late, topic_partitions=changed.topic_partitions).assignment is None
    assert beat(world, late).assignment is None


def test_what_a_member_never_reported_is_not_taken_for_revoked(world: ConsumerWorld) -> None:
    """librdkafka sends a full request after it joined, which may go out before it has taken what it was given."""
    told = {"rebalance_timeout_ms": 5, "subscribed_topic_names": ["t"], "topic_partitions": []}
    beat(world)
    b = beat(world, ConsumerGroupHeartbeatRequest(GROUP, "b", 0, **told))
    assert b.assignment is not None
    assert not b.assignment.topic_partitions
    asked = beat(world, ConsumerGroupHeartbeatRequest(GROUP, "a", 1, **told))
    assert asked.assignment is not None
    assert len(asked.assignment.topic_partitions[0].partitions) == 1, "it is asked to revoke the other one"
    waiting = beat(world, ConsumerGroupHeartbeatRequest(GROUP, "b", b.member_epoch))
    assert waiting.assignment is None, "no member has revoked anything"
    kept = asked.assignment.topic_partitions
    beat(world, ConsumerGroupHeartbeatRequest(GROUP, "a", asked.member_epoch, topic_partitions=kept))
    given = beat(world, ConsumerGroupHeartbeatRequest(GROUP, "b", b.member_epoch))
    assert given.assignment is not None
    assert given.assignment.topic_partitions


def test_a_heartbeat_without_changes_writes_nothing_and_only_extends_the_session(world: ConsumerWorld) -> None:
    beat(world)
    # The first heartbeat founds the group, and the second is the first that it sees.
    beat(world, ConsumerGroupHeartbeatRequest(GROUP, "a", 1))
    size, timers = len(world.log), dict(world.timers)
    world.advance(1_000)
    beat(world, ConsumerGroupHeartbeatRequest(GROUP, "a", 1))
    assert len(world.log) == size
    assert world.timers == {("consumer-session", GROUP, "a"): timers["consumer-session", GROUP, "a"] + 1_000}


def test_a_member_keeps_what_a_heartbeat_does_not_mention(world: ConsumerWorld) -> None:
    beat(world, rack_id="east", server_assignor="range")
    beat(world, ConsumerGroupHeartbeatRequest(GROUP, "a", 1, rebalance_timeout_ms=7))
    member = world.group().members["a"]
    assert member.rack_id == "east"
    assert member.server_assignor == "range"
    assert member.rebalance_timeout_ms == 7
    assert member.subscribed_topic_names == {"t"}


def test_only_a_changed_subscription_bumps_the_epoch(world: ConsumerWorld) -> None:
    beat(world)
    for changes in ({"rack_id": "west"}, {"server_assignor": "range"}, {"subscribed_topic_names": ["t", "t"]}):
        assert beat(world, ConsumerGroupHeartbeatRequest(GROUP, "a", 1), **changes).member_epoch == 1
    assert (
        beat(world, ConsumerGroupHeartbeatRequest(GROUP, "a", 1, subscribed_topic_names=["t", "u"])).member_epoch == 2
    )


def test_group_settings_decide_intervals_within_the_broker_s_bounds(world: ConsumerWorld) -> None:
    world.configs[GROUP] = {"consumer.heartbeat.interval.ms": "7000", "consumer.session.timeout.ms": "50000"}
    assert beat(world).heartbeat_interval_ms == 7_000
    assert world.timers["consumer-session", GROUP, "a"] == world.now_ms + 50_000
    world.configs[GROUP] = {"consumer.heartbeat.interval.ms": "1", "consumer.session.timeout.ms": "999999"}
    assert beat(world, member_id="b").heartbeat_interval_ms == 5_000
    assert world.timers["consumer-session", GROUP, "b"] == world.now_ms + 60_000


def test_the_records_of_a_first_join_are_those_of_kafka(world: ConsumerWorld) -> None:
    seen: list[Any] = []
    world.observer = lambda effects: seen.extend(effects.records)
    beat(world, instance_id="i", rack_id="r", subscribed_topic_names=["u", "t"], server_assignor="range")
    topic_id = world.topics.ids["t"]
    epoch = seen[1].value
    assert [record.key for record in seen] == [
        records.ConsumerGroupMemberMetadataKey(GROUP, "a"),
        records.ConsumerGroupMetadataKey(GROUP),
        records.ConsumerGroupTargetAssignmentMemberKey(GROUP, "a"),
        records.ConsumerGroupTargetAssignmentMetadataKey(GROUP),
        records.ConsumerGroupCurrentMemberAssignmentKey(GROUP, "a"),
    ]
    assert seen[0].value == records.ConsumerGroupMemberMetadataValue(
        "i", "r", "client", "/127.0.0.1", ["t", "u"], "", 1_000, "range", None
    )
    assert epoch.epoch == 1
    assert epoch.metadata_hash != 0
    assert seen[2].value == records.ConsumerGroupTargetAssignmentMemberValue([records.TopicPartition(topic_id, [0, 1])])
    assert seen[3].value == records.ConsumerGroupTargetAssignmentMetadataValue(1)
    assert seen[4].value == records.ConsumerGroupCurrentMemberAssignmentValue(
        1, 0, MemberState.STABLE, [records.TopicPartitions(topic_id, [0, 1])], []
    )
    assert {record.value_version for record in seen} == {0}


def test_a_group_that_an_older_kafka_wrote_loses_its_partition_metadata(world: ConsumerWorld) -> None:
    beat(world)
    key = records.ConsumerGroupPartitionMetadataKey(GROUP)
    world.shard.replay(key, records.ConsumerGroupPartitionMetadataValue())
    world.put_topic("t", 3)
    seen: list[Any] = []
    world.observer = lambda effects: seen.extend(effects.records)
    beat(world, ConsumerGroupHeartbeatRequest(GROUP, "a", 1))
    assert (key, None) in [(record.key, record.value) for record in seen]
    assert not world.group().has_partition_metadata


def test_two_assignors_that_as_many_members_ask_for_are_taken_in_the_broker_s_order(world: ConsumerWorld) -> None:
    beat(world, server_assignor="range")
    assert world.shard.consumer.describe(GROUP).assignor_name == "range"
    beat(world, member_id="b", server_assignor="uniform")
    assert world.shard.consumer.describe(GROUP).assignor_name == "uniform"
    beat(world, ConsumerGroupHeartbeatRequest(GROUP, "b", 2, server_assignor="range"))
    assert world.shard.consumer.describe(GROUP).assignor_name == "range"


def test_a_full_group_takes_its_own_members_only() -> None:
    world = ConsumerWorld(GroupSettings(consumer_max_size=2), t=1)
    assert [beat(world, member_id=name).error_code for name in "abc"] == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert beat(world, ConsumerGroupHeartbeatRequest(GROUP, "a", 1, topic_partitions=())).error_code == 0


def test_a_member_of_a_lost_group_must_join_again(world: ConsumerWorld) -> None:
    assert beat(world, member_epoch=4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(world, member_epoch=4, instance_id="i").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(world, member_epoch=-1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert not world.shard.list_groups()
    assert beat(world).member_epoch == 1


def test_a_pattern_stands_for_topics_that_the_member_may_describe() -> None:
    world = ConsumerWorld(orders=1, orders_secret=1)
    world.may_describe = lambda name: not name.endswith("secret")
    joined = beat(world, member_id="a", subscribed_topic_names=None, subscribed_topic_regex="orders.*")
    assert [row.topic_id for row in joined.assignment.topic_partitions] == [world.topics.ids["orders"]]


def test_a_pattern_that_others_still_use_no_longer_counts_for_a_member_without_it() -> None:
    world = ConsumerWorld(t=1, u=4)
    by_pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": "u"}
    beat(world, member_id="b", **by_pattern)
    joined = beat(world, member_id="a", subscribed_topic_regex="u")
    beat(world, member_id="a", member_epoch=joined.member_epoch, subscribed_topic_regex="")
    group = world.shard._groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    u = world.topics.ids["u"]
    assert (u in group.targets["a"], group.targets["b"][u]) == (False, frozenset(range(4)))


def test_a_pattern_that_was_replaced_by_another_is_forgotten() -> None:
    world = ConsumerWorld(t=1, u=1)
    by_pattern = {"subscribed_topic_names": None, "member_id": "a"}
    joined = beat(world, subscribed_topic_regex="t", **by_pattern)
    beat(world, subscribed_topic_regex="u", member_epoch=joined.member_epoch, **by_pattern)
    group = world.shard._groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    assert (dict(group.regex_counts), group.resolved_regexes.keys()) == ({"u": 1}, {"u"})
