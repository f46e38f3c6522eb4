"""What the controller decides about a replica that was found damaged and can still be read."""

from __future__ import annotations

import pytest
from metadata_world import ClusterWorld

from penstock.core.metadata.image import LOST_DIRECTORY
from penstock.model.errors import ErrorCode


def report(world: ClusterWorld, broker_id: int) -> ErrorCode:
    return world.assign(broker_id, LOST_DIRECTORY, kept_records=True)


def begin_anew(world: ClusterWorld, broker_id: int) -> ErrorCode:
    return world.assign(broker_id, world.directory(broker_id))


def is_lost(world: ClusterWorld, broker_id: int) -> bool:
    return world.state().directory(broker_id) == LOST_DIRECTORY


def test_it_leads_no_more_and_leaves_the_in_sync_replicas() -> None:
    world = ClusterWorld(3, min_insync_replicas=2)
    world.create("t", (1, 2, 3))
    assert report(world, 1) is ErrorCode.NONE
    assert world.show() == "leader=2@1 isr=2,3"
    assert is_lost(world, 1)


def test_it_stays_in_sync_but_does_not_lead_where_too_few_others_are() -> None:
    world = ClusterWorld(3, min_insync_replicas=2)
    world.create("t", (1, 2, 3))
    world.alter_isr([1, 2])
    assert report(world, 1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.show() == "leader=2@1 isr=1,2"
    assert not is_lost(world, 1)
    assert report(world, 1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.show() == "leader=2@1 isr=1,2", "nothing else is to be done"


def test_it_stays_eligible_until_the_only_other_replica_has_confirmed_that_it_is_alone() -> None:
    world = ClusterWorld(2)
    world.create("t", (1, 2))
    assert report(world, 1) is ErrorCode.NONE
    assert world.show() == "leader=2@1 isr=2 elr=1"
    # The answer may have been lost, so that the broker reports it again.
    assert report(world, 1) is ErrorCode.NONE
    assert world.show() == "leader=2@1 isr=2 elr=1"
    world.alter_isr([2])
    assert world.show() == "leader=2@1 isr=2"


def test_it_leaves_also_where_a_commit_needs_every_replica() -> None:
    """Without it nothing can be written until it is back, as when its broker restarts."""
    world = ClusterWorld(2, min_insync_replicas=2)
    world.create("t", (1, 2))
    assert report(world, 1) is ErrorCode.NONE
    assert world.show() == "leader=2@1 isr=2 elr=1"
    world.alter_isr([2])
    assert world.show() == "leader=2@1 isr=2", "the leader has synced what it has"
    assert begin_anew(world, 1) is ErrorCode.NONE
    world.alter_isr([1, 2])
    assert world.show() == "leader=2@2 isr=1,2"


@pytest.mark.parametrize("others", ["none", "gone", "eligible"])
def test_nothing_changes_for_the_last_copy(others: str) -> None:
    world = ClusterWorld(2)
    world.create("t", (1,) if others == "none" else (1, 2))
    if others == "gone":
        world.fence(2)
    elif others == "eligible":
        world.fence(2)
        world.fence(1)
    before = world.state()
    assert report(world, 1) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert world.state() == before


def test_a_damaged_follower_that_is_not_in_sync_is_taken_out_of_service_too() -> None:
    world = ClusterWorld(3, min_insync_replicas=2)
    world.create("t", (1, 2, 3))
    world.alter_isr([1, 2])
    assert report(world, 3) is ErrorCode.NONE
    assert world.show() == "leader=1@0 isr=1,2"
    assert is_lost(world, 3)


def test_it_cannot_be_proposed_as_in_sync() -> None:
    world = ClusterWorld(3, min_insync_replicas=2)
    world.create("t", (1, 2, 3))
    report(world, 3)
    assert world.alter_isr([1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert world.show() == "leader=1@0 isr=1,2"


def test_what_the_leader_knew_of_its_progress_does_not_count_once_it_begins_anew() -> None:
    """Its broker runs on: only the leader epoch tells its former progress from the present one."""
    world = ClusterWorld(3, min_insync_replicas=2)
    world.create("t", (1, 2, 3))
    report(world, 3)
    former = world.state()
    assert begin_anew(world, 3) is ErrorCode.NONE
    assert world.show() == "leader=1@1 isr=1,2"
    late = world.alter_isr([1, 2, 3], leader_epoch=former.leader_epoch, partition_epoch=former.partition_epoch)
    assert late.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert world.alter_isr([1, 2, 3]).error_code == 0
    assert world.show() == "leader=1@1 isr=1,2,3"


def test_a_late_copy_of_a_report_takes_no_replica_out_of_service_that_has_begun_anew() -> None:
    world = ClusterWorld(3, min_insync_replicas=2)
    world.create("t", (1, 2, 3))
    epoch = world.state().partition_epoch
    for _ in range(2):
        assert world.assign(3, LOST_DIRECTORY, kept_records=True, partition_epoch=epoch) is ErrorCode.NONE
        assert world.state().partition_epoch == epoch + 1, "a repeated report changes nothing more"
    begun = world.state().partition_epoch
    for _ in range(2):
        assert world.assign(3, world.directory(3), partition_epoch=begun) is ErrorCode.NONE
        assert world.state().partition_epoch == begun + 1
    world.alter_isr([1, 2, 3])
    before = world.state()
    for kept in (True, False):
        late = world.assign(3, LOST_DIRECTORY, kept_records=kept, partition_epoch=epoch)
        assert late is ErrorCode.INVALID_UPDATE_VERSION
        assert world.state() == before


@pytest.mark.parametrize("kept", [True, False])
def test_a_late_report_puts_no_replica_back_that_is_damaged_again(kept: bool) -> None:
    """Where it was is where it is found damaged now."""
    world = ClusterWorld(3, min_insync_replicas=2)
    world.create("t", (1, 2, 3))
    report(world, 3)
    epoch = world.state().partition_epoch
    begin_anew(world, 3)
    world.alter_isr([1, 2, 3])
    report(world, 3)
    late = world.assign(3, world.directory(3), kept_records=kept, partition_epoch=epoch)
    assert late is ErrorCode.INVALID_UPDATE_VERSION
    assert is_lost(world, 3)


def test_a_move_does_not_depend_on_the_partition_epoch() -> None:
    world = ClusterWorld(3)
    world.register(3, log_dirs=[world.directory(3), world.directory(3, 1)])
    world.create("t", (1, 2, 3))
    world.alter_isr([1, 3])
    assert world.assign(3, world.directory(3, 1), partition_epoch=0) is ErrorCode.NONE
    assert world.state().directory(3) == world.directory(3, 1)


def test_without_a_leader_there_is_no_progress_to_forget() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    report(world, 3)
    world.alter_isr([1])
    world.fence(1)
    epoch = world.state().leader_epoch
    assert begin_anew(world, 3) is ErrorCode.NONE
    assert world.state().leader_epoch == epoch
    assert world.state().leader == -1
