"""Members over time: static ones that restart, slow ones, and what is left of those who are gone."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.group.consumer.members import MemberState
from penstock.model.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from support.worlds.consumer_world import GROUP, ConsumerWorld


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld(t=4, u=3, v=3)


def beat(world: ConsumerWorld, member_id: str, epoch: int, **more: Any) -> Any:
    return world.answer("consumer.heartbeat", ConsumerGroupHeartbeatRequest(GROUP, member_id, epoch, **more), 1)


def join(world: ConsumerWorld, member_id: str, topics: str = "t", **more: Any) -> Any:
    names = topics.split()
    given = {"rebalance_timeout_ms": 20_000, "subscribed_topic_names": names, "topic_partitions": (), **more}
    return beat(world, member_id, 0, **given)


def unrevoked(world: ConsumerWorld, **more: Any) -> None:
    """A member a that is to give up two partitions for a member b."""
    join(world, "a", **more)
    join(world, "b")
    beat(world, "a", 1, instance_id=more.get("instance_id"))
    assert world.group().members["a"].state is MemberState.UNREVOKED_PARTITIONS


def test_a_member_that_leaves_has_its_timers_cancelled(world: ConsumerWorld) -> None:
    unrevoked(world)
    assert len(world.timers) == 3
    beat(world, "a", -1)
    assert {key[2] for key in world.timers} == {"b"}


def test_a_member_in_time_is_not_removed_for_being_slow(world: ConsumerWorld) -> None:
    unrevoked(world)
    assert ("consumer-rebalance", GROUP, "a") in world.timers
    beat(world, "a", 1, topic_partitions=[TopicPartitions(world.topics.ids["t"], [0, 1])])
    assert ("consumer-rebalance", GROUP, "a") not in world.timers


def test_a_coordinator_that_takes_over_gives_slow_members_their_time_again(world: ConsumerWorld) -> None:
    unrevoked(world)
    world.advance(19_000)
    world.reload()
    world.advance(19_000)
    assert beat(world, "a", 1).error_code == ErrorCode.NONE
    world.advance(1_000)
    assert beat(world, "a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_pauses_has_let_go_of_what_it_had_to_give_up(world: ConsumerWorld) -> None:
    unrevoked(world, instance_id="i")
    beat(world, "a", -2, instance_id="i")
    assert world.shown(beat(world, "b", 2).assignment.topic_partitions) == "t/2,3"
    # Its session decides how long it may stay away, no longer its rebalance timeout.
    world.advance(30_000)
    assert "a" in world.group().members


def test_a_static_member_can_come_back_with_another_subscription(world: ConsumerWorld) -> None:
    join(world, "a", instance_id="i")
    beat(world, "a", -2, instance_id="i")
    join(world, "a2", "t u", instance_id="i")
    group = world.group()
    assert group.targets.keys() == group.members.keys() == {"a2"}
    assert world.shown_target("a2") == "t/0,1,2,3 u/0,1,2"
    assert group.epoch == group.assignment_epoch == 2


def test_a_static_member_can_come_back_under_the_same_id(world: ConsumerWorld) -> None:
    join(world, "a", instance_id="i")
    beat(world, "a", -2, instance_id="i")
    response = join(world, "a", instance_id="i")
    assert response.member_epoch == 1
    assert world.shown(response.assignment.topic_partitions) == "t/0,1,2,3"
    assert len(world.group().members) == 1


def test_a_static_member_is_refused_under_any_id_while_its_instance_is_in_use(world: ConsumerWorld) -> None:
    join(world, "a", instance_id="i")
    for member_id in ("a", "a2"):
        assert join(world, member_id, instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert beat(world, "a2", 1, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert beat(world, "a2", -1, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert beat(world, "a", 1, instance_id="other").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(world, "a", -1, instance_id="i").error_code == ErrorCode.NONE


def test_a_member_that_changes_its_assignor_no_longer_votes_for_the_old_one(world: ConsumerWorld) -> None:
    join(world, "a", "u v", server_assignor="uniform")
    join(world, "b", "u v")
    beat(world, "a", 1, server_assignor="range", subscribed_topic_names=["u", "v", "w"])
    assert world.shown_target("a") == "u/0,1 v/0,1"
    assert world.shown_target("b") == "u/2 v/2"


def test_another_member_reads_a_topic_on_when_one_stops(world: ConsumerWorld) -> None:
    join(world, "a", "t u")
    join(world, "b", "t")
    beat(world, "a", 1, subscribed_topic_names=["u"])
    assert all(world.group().is_subscribed_to(topic) for topic in "tu")
    # A coordinator that takes over looks at the topics itself, and finds them as they were.
    before = world.group().epoch
    world.reload()
    beat(world, "b", 2)
    assert world.group().epoch == before
    world.put_topic("t", 5)
    beat(world, "b", 2, topic_partitions=())
    assert world.group().epoch == before + 1


def test_topics_no_member_reads_do_not_bump_the_epoch(world: ConsumerWorld) -> None:
    join(world, "a")
    world.put_topic("u", 9)
    world.put_topic("new", 1)
    assert beat(world, "a", 1).member_epoch == 1


def test_a_pattern_is_resolved_again_after_its_interval_even_if_nothing_happened(world: ConsumerWorld) -> None:
    join(world, "a", subscribed_topic_names=None, subscribed_topic_regex="[tu]")
    beat(world, "a", 1)
    resolved = world.group().resolved_regexes["[tu]"]
    assert resolved.topics == {"t", "u"}
    for _ in range(16):
        world.advance(44_000)
        beat(world, "a", 1)
    again = world.group().resolved_regexes["[tu]"]
    assert again.topics == {"t", "u"}
    assert again.timestamp_ms >= resolved.timestamp_ms + 600_000
    assert world.group().epoch == 1


def test_a_pattern_goes_with_its_last_member(world: ConsumerWorld) -> None:
    for member_id in ("a", "b"):
        join(world, member_id, subscribed_topic_names=None, subscribed_topic_regex="[tu]")
    beat(world, "a", -1)
    assert world.group().is_subscribed_to("u")
    beat(world, "b", -1)
    assert not world.group().resolved_regexes
    assert not world.group().is_subscribed_to("u")
