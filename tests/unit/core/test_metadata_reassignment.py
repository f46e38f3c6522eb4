"""Replicas move: what a reassignment is while it is under way, how it ends, how it is cancelled."""

from __future__ import annotations

import pytest
from metadata_world import ClusterWorld

from penstock.core.metadata.configs import change_configs
from penstock.core.metadata.image import ResourceType
from penstock.core.metadata.reassignment import alter_reassignments, list_reassignments
from penstock.model.errors import ErrorCode
from penstock.wire.messages.alter_partition_reassignments import ReassignablePartition, ReassignableTopic
from penstock.wire.messages.list_partition_reassignments import ListPartitionReassignmentsTopics


def test_a_reassignment_ends_when_its_target_is_in_sync() -> None:
    world = ClusterWorld(5)
    world.create("t", (1, 2, 3))
    assert world.reassign((4, 5, 3)) is ErrorCode.NONE
    assert world.show() == "leader=1@0 isr=1,2,3 replicas=4,5,3,1,2 adding=4,5 removing=1,2"
    assert world.state().directories == tuple(world.directory(number) for number in (4, 5, 3, 1, 2))
    world.alter_isr([1, 2, 3, 4])
    assert world.show().startswith("leader=1@0 isr=1,2,3,4 replicas")
    answer = world.alter_isr([1, 2, 3, 4, 5])
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert world.show() == "leader=4@1 isr=3,4,5"
    assert world.state().replicas == (4, 5, 3)
    assert world.state().directories == tuple(world.directory(number) for number in (4, 5, 3))


def test_a_leader_that_stays_gets_a_new_epoch_when_replicas_go() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    world.reassign((1, 2))
    assert world.show() == "leader=1@1 isr=1,2"
    assert world.state().replicas == (1, 2)


def test_another_order_is_a_reassignment_without_work() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    world.reassign((3, 2, 1))
    assert (world.state().replicas, world.show()) == ((3, 2, 1), "leader=1@0 isr=1,2,3")


def test_cancelling_takes_the_added_replicas_away() -> None:
    world = ClusterWorld(4)
    world.create("t", (1, 2, 3))
    assert world.reassign(None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    world.reassign((1, 2, 4))
    assert world.reassign(None) is ErrorCode.NONE
    assert world.show() == "leader=1@1 isr=1,2,3"
    assert set(world.state().replicas) == {1, 2, 3}


def test_cancelling_is_refused_when_only_added_replicas_have_the_records() -> None:
    world = ClusterWorld(4)
    world.create("t", (1, 2))
    world.reassign((3, 4))
    world.alter_isr([1, 2, 3])
    world.fence(1, 2)
    assert world.show().startswith("leader=3@1 isr=3 ")
    before = world.state()
    assert world.reassign(None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.state() == before


def test_cancelling_is_refused_when_only_an_added_replica_was_the_last_leader() -> None:
    world = ClusterWorld(4)
    world.create("t", (1, 2))
    world.reassign((3, 4))
    world.alter_isr([1, 2, 3])
    world.fence(1, 2)
    world.alter_isr([3])
    world.restart_with(3, world.directory(3))
    assert world.show().startswith("leader=-1@2 isr=- last=3 ")
    assert world.reassign(None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    world.apply(change_configs(world.image, ResourceType.TOPIC, "t", {"unclean.leader.election.enable": "true"}))
    assert world.reassign(None) is ErrorCode.NONE
    world.reassign((3, 4))
    world.unfence(3)
    assert world.state().last_known_leader_replicas == (), "its records were deleted"
    assert 3 not in world.state().in_sync_replicas


def test_cancelling_goes_back_to_a_single_replica_once_that_one_has_confirmed() -> None:
    world = ClusterWorld(3)
    world.create("t", (1,))
    world.reassign((1, 2, 3))
    world.alter_isr([1, 2])
    assert world.reassign(None) is ErrorCode.NONE
    # What was acknowledged with the second replica may not be on the disk of the first yet.
    assert world.show() == "leader=1@0 isr=1,2 replicas=1,2,3 adding=2,3 removing=2,3"
    assert world.alter_isr([1]).error_code == ErrorCode.NONE
    assert (world.state().replicas, world.show()) == ((1,), "leader=1@1 isr=1")


def test_cancelling_leaves_no_single_replica_that_may_not_have_synced_its_log() -> None:
    world = ClusterWorld(4)
    world.create("t", (1, 2))
    world.reassign((3, 4))
    world.alter_isr([1, 2, 3])
    world.fence(2)
    assert world.show().startswith("leader=1@0 isr=1,3 ")
    assert world.reassign(None) is ErrorCode.NONE
    # What 1 and 3 acknowledged since may only be in their memory: without 3, that of 1 would have to do.
    assert world.show() == "leader=1@0 isr=1,3 replicas=1,2,3,4 adding=3,4 removing=3,4"
    world.unfence(2)
    world.alter_isr([1, 2, 3])
    assert (world.state().replicas, world.show()) == ((1, 2), "leader=1@1 isr=1,2")


def test_cancelling_leaves_no_single_eligible_replica_that_may_not_have_synced_its_log() -> None:
    world = ClusterWorld(4, min_insync_replicas=2)
    world.create("t", (1, 2))
    world.reassign((3, 4))
    world.alter_isr([1, 2, 3])
    world.fence(2, 1, 3)
    world.start(2)
    assert world.show() == "leader=-1@2 isr=- elr=1,3 last=3 replicas=3,4,1,2 adding=3,4 removing=1,2"
    assert world.reassign(None) is ErrorCode.NONE
    assert world.state().eligible_leader_replicas == (1, 3)
    world.unfence(3)
    assert world.state().leader == 3
    world.unfence(1)
    world.alter_isr([1, 2, 3])
    assert (set(world.state().replicas), world.state().in_sync_replicas) == ({1, 2}, (1, 2))


def test_cancelling_to_an_eligible_replica_waits_until_it_has_confirmed_that_it_is_alone() -> None:
    world = ClusterWorld(2, min_insync_replicas=2)
    world.create("t", (1,))
    world.reassign((1, 2))
    world.fence(1)
    assert world.state().eligible_leader_replicas == (1,)
    assert world.reassign(None) is ErrorCode.NONE
    assert world.state().replicas == (1, 2)
    world.unfence(1)
    world.alter_isr([1])
    assert (world.state().replicas, world.state().in_sync_replicas) == ((1,), (1,))


def test_cancelling_uncleanly_goes_back_to_a_replica_that_has_every_record() -> None:
    world = ClusterWorld(4, min_insync_replicas=2)
    world.create("t", (1, 2), unclean_leader_election_enable="true")
    world.reassign((3, 4))
    world.alter_isr([1, 2, 3])
    world.start(1)
    world.fence(2)
    world.unfence(2)
    assert world.show().startswith("leader=3@1 isr=3 elr=2 ")
    assert world.reassign(None) is ErrorCode.NONE
    assert world.state().in_sync_replicas == (2,)


def test_cancelling_before_another_replica_was_in_sync_goes_back_at_once() -> None:
    world = ClusterWorld(2)
    world.create("t", (1,))
    world.reassign((2,))
    assert world.reassign(None) is ErrorCode.NONE
    assert (world.state().replicas, world.show()) == ((1,), "leader=1@1 isr=1")


def test_cancelling_twice_is_cancelling_once() -> None:
    world = ClusterWorld(3)
    world.create("t", (1,))
    world.reassign((1, 2, 3))
    world.alter_isr([1, 2])
    world.reassign(None)
    before = world.state()
    assert world.reassign(None) is ErrorCode.NONE
    assert world.state() == before
    world.alter_isr([1])
    assert (world.state().replicas, world.show()) == ((1,), "leader=1@1 isr=1")


def test_a_new_target_after_a_cancellation_can_be_cancelled_too() -> None:
    world = ClusterWorld(4)
    world.create("t", (1,))
    world.reassign((1, 2, 3))
    world.alter_isr([1, 2])
    world.reassign(None)
    world.reassign((1, 4))
    assert world.show() == "leader=1@0 isr=1,2 replicas=1,4,2,3 adding=2,3,4 removing=2,3"
    world.reassign(None)
    world.alter_isr([1])
    assert (world.state().replicas, world.show()) == ((1,), "leader=1@1 isr=1")


def test_cancelling_after_a_changed_target_goes_back_to_the_first_replicas() -> None:
    world = ClusterWorld(5)
    world.create("t", (1, 2, 3))
    world.reassign((1, 2, 4))
    world.reassign((1, 2, 5))
    assert world.reassign(None) is ErrorCode.NONE
    assert set(world.state().replicas) == {1, 2, 3}


def test_a_reassignment_can_change_its_target() -> None:
    world = ClusterWorld(5)
    world.create("t", (1, 2, 3))
    world.reassign((1, 2, 4))
    world.reassign((1, 2, 5))
    assert world.show() == "leader=1@0 isr=1,2,3 replicas=1,2,5,3,4 adding=4,5 removing=3,4"
    world.alter_isr([1, 2, 3, 5])
    assert (world.state().replicas, world.show()) == ((1, 2, 5), "leader=1@1 isr=1,2,5")


@pytest.mark.parametrize("target", [(), (1, 9), (1, 1)])
def test_targets_that_cannot_be_are_refused(target: tuple[int, ...]) -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    assert world.reassign(target) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.reassign((1, 2), "none") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_replication_factor_stays_on_demand_and_requests_are_bounded() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2), (1, 2), (1, 2))
    rows = [ReassignablePartition(0, (1,)), ReassignablePartition(1, (2, 3)), ReassignablePartition(2, (3, 1))]
    rows.append(rows[1])
    result = alter_reassignments(
        world.image, [ReassignableTopic("t", rows)], world.defaults, 1, allow_replication_factor_change=False
    )
    assert [row.error_code for row in result.response[0].partitions] == [
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert len(result.records) == 1


def test_reassignments_are_listed_by_topic() -> None:
    world = ClusterWorld(4)
    world.create("t", (1, 2), (1, 2))
    world.create("a", (1, 2))
    assert list_reassignments(world.image, None) == []
    world.reassign((1, 3), "t", 1)
    world.reassign((1, 4), "a", 0)
    listed = list_reassignments(world.image, None)
    assert [(topic.name, [row.partition_index for row in topic.partitions]) for topic in listed] == [
        ("a", [0]),
        ("t", [1]),
    ]
    row = listed[1].partitions[0]
    assert (row.replicas, row.adding_replicas, row.removing_replicas) == ((1, 3, 2), (3,), (2,))
    wanted = [ListPartitionReassignmentsTopics("t", [0, 1, 7]), ListPartitionReassignmentsTopics("none", [0])]
    assert [topic.name for topic in list_reassignments(world.image, wanted)] == ["t"]
    assert list_reassignments(world.image, [ListPartitionReassignmentsTopics("t", [0])]) == []


def test_a_single_replica_leads_before_the_others_go() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    world.reassign((3,))
    assert world.show() == "leader=3@1 isr=1,2,3 replicas=3,1,2 adding=- removing=1,2"
    # The others are there as long as it has not asked for them to go: it may be gone itself.
    world.fence(3)
    assert world.show() == "leader=1@2 isr=1,2 replicas=3,1,2 adding=- removing=1,2"
    world.unfence(3)
    assert world.alter_isr([1, 2, 3]).error_code == ErrorCode.NEW_LEADER_ELECTED
    assert world.show() == "leader=3@3 isr=1,2,3 replicas=3,1,2 adding=- removing=1,2"
    assert world.alter_isr([3]).error_code == ErrorCode.NONE
    assert (world.state().replicas, world.show()) == ((3,), "leader=3@4 isr=3")


def test_a_single_replica_that_moves_leads_with_the_former_one_until_it_confirms() -> None:
    world = ClusterWorld(2)
    world.create("t", (1,))
    world.reassign((2,))
    assert world.alter_isr([1, 2]).error_code == ErrorCode.NEW_LEADER_ELECTED
    assert world.show() == "leader=2@1 isr=1,2 replicas=2,1 adding=2 removing=1"
    world.alter_isr([2])
    assert (world.state().replicas, world.show()) == ((2,), "leader=2@2 isr=2")


def test_a_replica_that_is_alone_already_need_not_confirm_it_again() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    world.alter_isr([1])
    world.reassign((1,))
    assert (world.state().replicas, world.show()) == ((1,), "leader=1@1 isr=1")
