"""Who leads when brokers go and come: stories in which every line shows the partition after a step."""

from __future__ import annotations

import pytest
from metadata_world import ClusterWorld

from penstock.api.cluster.metadata import offline_replicas
from penstock.core.metadata import brokers, elections
from penstock.core.metadata.configs import change_configs
from penstock.core.metadata.election_rules import ElectionRules
from penstock.core.metadata.elections import ElectionType
from penstock.core.metadata.image import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    ResourceType,
)
from penstock.model.errors import ErrorCode
from penstock.wire.messages.elect_leaders import TopicPartitions
from penstock.wire.messages.metadata_records import FeatureLevelRecord


def test_the_next_in_sync_replica_leads_when_the_leader_is_fenced() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    world.alter_isr([1, 3])
    world.fence(1)
    assert world.show() == "leader=3@1 isr=3 elr=1", "3 may be gone as well, and 1 has everything"
    world.alter_isr([3])
    assert world.show() == "leader=3@1 isr=3", "3 was heard of: it commits alone from now on"


def test_with_a_minimum_of_one_the_last_that_left_stays_eligible_until_the_leader_is_heard_of() -> None:
    """All are killed, and 3, which lost power, is the last to be missed."""
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    world.fence(1)
    assert world.show() == "leader=2@1 isr=2,3"
    world.fence(2)
    assert world.show() == "leader=3@2 isr=3 elr=2"
    world.fence(3)
    assert world.show() == "leader=-1@3 isr=- elr=2,3 last=3"
    world.start(3, clean=False)
    assert world.show() == "leader=-1@3 isr=- elr=2 last=3"
    world.start(2, clean=True)
    assert world.show() == "leader=2@4 isr=2"


def test_brokers_about_to_stop_lead_only_where_no_other_can() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3), (1, 2))
    world.apply(brokers.fence(world.image, 1, world.defaults, None, [1, 2]))
    assert world.show("t", 0) == "leader=3@1 isr=2,3"
    assert world.show("t", 1) == "leader=2@1 isr=2 elr=1"


def test_a_follower_that_is_fenced_costs_no_leader_epoch() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    world.fence(3)
    assert world.show() == "leader=1@0 isr=1,2"


def test_below_the_minimum_those_who_leave_stay_eligible() -> None:
    world = ClusterWorld(3, min_insync_replicas=2)
    world.create("t", (1, 2, 3))
    world.fence(3)
    assert world.show() == "leader=1@0 isr=1,2"
    world.fence(2)
    assert world.show() == "leader=1@0 isr=1 elr=2"
    world.fence(1)
    assert world.show() == "leader=-1@1 isr=- elr=2,1 last=1"
    world.unfence(3)
    assert world.show() == "leader=-1@1 isr=- elr=2,1 last=1", "3 lacks what was committed without it"
    world.unfence(2)
    assert world.show() == "leader=2@2 isr=2 elr=1"
    world.alter_isr([2, 3])
    assert world.show() == "leader=2@2 isr=2,3", "enough are in sync again"


def test_the_last_in_sync_replica_is_not_trusted_after_an_unclean_stop() -> None:
    world = ClusterWorld(3, min_insync_replicas=2)
    world.create("t", (1, 2, 3))
    world.fence(3, 2)
    assert world.show() == "leader=1@0 isr=1 elr=2"
    world.fence(1)
    world.start(1, clean=False)
    assert world.show() == "leader=-1@1 isr=- elr=2 last=1"
    world.unfence(2)
    assert world.show() == "leader=2@2 isr=2"


def test_the_last_in_sync_replica_leads_again_after_a_clean_stop() -> None:
    world = ClusterWorld(3, min_insync_replicas=2)
    world.create("t", (1, 2, 3))
    world.fence(3, 2, 1)
    world.start(1, clean=True)
    assert world.show() == "leader=1@2 isr=1 elr=2"


def test_without_eligible_replicas_the_last_leader_returns_and_recovers() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    world.fence(2, 3)
    world.alter_isr([1])
    world.start(1, clean=False)
    assert world.show() == "leader=1@2 isr=1 recovering"
    world.unfence(2)
    refused = world.alter_isr([1, 2], leader_recovery_state=1)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    world.alter_isr([1, 2])
    assert world.show() == "leader=1@2 isr=1,2"


def test_the_last_leader_is_not_elected_while_it_is_away() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    world.fence(2, 3)
    world.alter_isr([1])
    world.incarnations[1] += 1
    world.lose(1)
    world.register(1)
    assert world.show() == "leader=-1@1 isr=- last=1"
    world.unfence(2)
    assert world.show() == "leader=-1@1 isr=- last=1"


def test_an_unclean_election_takes_any_live_replica_where_the_topic_allows_it() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3), unclean_leader_election_enable="true")
    world.alter_isr([1])
    world.fence(1)
    assert world.show() == "leader=2@1 isr=2 recovering"


def test_without_the_feature_the_last_in_sync_replica_stays_in_the_isr() -> None:
    world = ClusterWorld(2)
    world.apply([FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, 0)])
    world.create("t", (1, 2))
    world.fence(2, 1)
    assert world.show() == "leader=-1@1 isr=1"
    world.unfence(2)
    assert world.show() == "leader=-1@1 isr=1"
    world.start(1, clean=False)
    assert world.show() == "leader=1@2 isr=1"


def test_after_a_lower_minimum_the_leader_ends_what_was_eligible_before() -> None:
    world = ClusterWorld(3, min_insync_replicas=2)
    world.create("t", (1, 2, 3))
    world.create("other", (1, 2, 3))
    world.fence(3, 2)
    world.alter_isr([1])
    assert world.show("t") == "leader=1@0 isr=1 elr=2", "one is not enough"
    world.apply(change_configs(world.image, ResourceType.TOPIC, "t", {"min.insync.replicas": "1"}))
    assert world.show("t") == "leader=1@0 isr=1 elr=2", "the leader may not be there to hear of it"
    world.alter_isr([1])
    assert world.show("t") == "leader=1@0 isr=1"
    assert world.show("other") == "leader=1@0 isr=1 elr=2"


def test_a_lower_minimum_leaves_those_eligible_that_alone_can_lead() -> None:
    world = ClusterWorld(3, min_insync_replicas=2)
    world.create("t", (1, 2, 3))
    world.fence(3, 2, 1)
    world.apply(change_configs(world.image, ResourceType.TOPIC, "t", {"min.insync.replicas": "1"}))
    assert world.show() == "leader=-1@1 isr=- elr=2,1 last=1"
    world.unfence(2)
    assert world.show() == "leader=2@2 isr=2 elr=1"
    world.alter_isr([2])
    assert world.show() == "leader=2@2 isr=2", "2 commits alone from now on, so 1 is eligible no longer"


def test_preferred_leaders_are_elected_when_they_are_in_sync() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    assert world.elect(ElectionType.PREFERRED) is ErrorCode.ELECTION_NOT_NEEDED
    world.fence(1)
    world.unfence(1)
    assert world.show() == "leader=2@1 isr=2,3"
    assert world.elect(ElectionType.PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    world.alter_isr([2, 3, 1])
    assert world.elect(ElectionType.PREFERRED) is ErrorCode.NONE
    assert world.show() == "leader=1@2 isr=2,3,1"
    assert world.elect(ElectionType.PREFERRED, "t", 7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_operators_can_hold_unclean_elections_anywhere() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    assert world.elect(ElectionType.UNCLEAN) is ErrorCode.ELECTION_NOT_NEEDED
    world.alter_isr([1])
    world.fence(1, 2, 3)
    assert world.elect(ElectionType.UNCLEAN) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    world.unfence(3)
    assert world.elect(ElectionType.UNCLEAN) is ErrorCode.NONE
    assert world.show() == "leader=3@2 isr=3 recovering"


def test_an_election_for_everything_shows_only_what_it_did() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2), (2, 1), (1, 3))
    world.fence(1)
    world.unfence(1)
    world.alter_isr([2, 1])
    result = elections.elect_leaders(world.image, ElectionType.PREFERRED, None, world.defaults, 100)
    (row,) = result.response
    assert [(one.partition_id, one.error_code) for one in row.partition_result] == [
        (0, ErrorCode.NONE),
        (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ]
    assert len(result.records) == 1
    limited = elections.elect_leaders(
        world.image, ElectionType.PREFERRED, [TopicPartitions("t", [0])], world.defaults, 0
    )
    assert limited.records == []


def test_balance_moves_a_bounded_number_of_leaders() -> None:
    world = ClusterWorld(2)
    world.create("t", *[(1, 2)] * 10)
    world.fence(1)
    world.unfence(1)
    for index in range(10):
        world.alter_isr([2, 1], "t", index)
    assert len(elections.balance_leaders(world.image, world.image.topics.values(), world.defaults, 4)) == 4
    world.apply(elections.balance_leaders(world.image, world.image.topics.values(), world.defaults))
    assert {world.state("t", index).leader for index in range(10)} == {1}
    assert world.image.not_preferred_count == 0


def test_unclean_elections_of_the_controller_are_for_topics_that_want_them() -> None:
    world = ClusterWorld(2)
    world.create("t", (1, 2))
    world.create("u", (1, 2))
    for name in ("t", "u"):
        world.alter_isr([1], name)
    world.fence(1)
    assert elections.elect_unclean_leaders(world.image, world.defaults) == []
    world.apply(change_configs(world.image, ResourceType.TOPIC, "u", {"unclean.leader.election.enable": "true"}))
    world.apply(elections.elect_unclean_leaders(world.image, world.defaults))
    assert (world.state("t").leader, world.state("u").leader) == (-1, 2)
    world.apply(elections.elect_unclean_leaders(world.image, ElectionRules(1, True)))
    assert world.state("t").leader == 2


def test_a_failed_directory_costs_its_replicas_only() -> None:
    world = ClusterWorld(2)
    first, second = world.directory(1), world.directory(1, 1)
    world.register(1, log_dirs=[first, second])
    world.create("t", (1, 2))
    world.create("u", (1, 2))
    state = world.state("u")
    world.assign(1, second, "u")
    assert world.state("u").directories == (second, *state.directories[1:])
    world.heartbeat(1, offline_log_dirs=[second])
    assert world.show("t") == "leader=1@0 isr=1,2"
    assert world.show("u") == "leader=2@1 isr=2 elr=1"
    assert list(world.image.brokers[1].registration.log_dirs) == [first]
    world.fence(2)
    assert world.show("u") == "leader=-1@2 isr=- elr=1,2 last=2", "1 cannot serve it"


def test_a_replica_in_a_failed_directory_cannot_be_proposed_as_in_sync() -> None:
    """Its leader knows that it had caught up, and not yet that the directory failed under it."""
    world = ClusterWorld(3)
    first, second = world.directory(3), world.directory(3, 1)
    world.register(3, log_dirs=[first, second])
    world.create("t", (1, 2, 3))
    world.heartbeat(3, offline_log_dirs=[first])
    assert world.show() == "leader=1@0 isr=1,2"
    assert world.alter_isr([1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert world.alter_isr([1, 2]).error_code == ErrorCode.NONE


def test_a_replica_that_is_reported_in_its_failed_directory_again_stays_eligible() -> None:
    world, _ = after_a_directory_failed()
    assert world.show("u") == "leader=2@1 isr=2 elr=1"
    assert world.assign(1, world.directory(1, 1), "u") is ErrorCode.NONE
    assert world.show("u") == "leader=2@1 isr=2 elr=1"


def test_a_broker_without_a_directory_that_works_is_fenced() -> None:
    world = ClusterWorld(2)
    world.register(1, log_dirs=[world.directory(1), world.directory(1, 1)])
    world.create("t", (1, 2))
    offline = [world.directory(1)]
    assert not world.heartbeat(1, offline_log_dirs=offline).is_fenced
    offline.append(world.directory(1, 1))
    for _ in range(2):
        assert world.heartbeat(1, offline_log_dirs=offline).is_fenced
        assert world.image.brokers[1].fenced
        assert world.show() == "leader=2@1 isr=2 elr=1"
    world.fence(2)
    assert world.show() == "leader=-1@2 isr=- elr=1,2 last=2"


def after_a_directory_failed() -> tuple[ClusterWorld, bytes]:
    """A topic u whose replica on broker 1 was noted in a directory that failed since, and the broker's other one."""
    world = ClusterWorld(2)
    first, second = world.directory(1), world.directory(1, 1)
    world.register(1, log_dirs=[first, second])
    world.create("u", (1, 2))
    world.assign(1, second, "u")
    world.heartbeat(1, offline_log_dirs=[second])
    return world, first


def test_a_replica_that_begins_anew_elsewhere_is_not_eligible() -> None:
    """Its directory failed and was taken out of log.dirs; what the broker has now may be empty."""
    world, first = after_a_directory_failed()
    assert world.show("u") == "leader=2@1 isr=2 elr=1"
    world.assign(1, first, "u")
    assert world.show("u") == "leader=2@1 isr=2"
    world.fence(2)
    assert world.show("u") == "leader=-1@2 isr=- elr=2 last=2"


def test_a_replica_that_did_not_move_into_a_directory_that_failed_stays_eligible() -> None:
    """It was announced there, and kept its records where they were."""
    world, first = after_a_directory_failed()
    world.fence(2)
    assert world.show("u") == "leader=-1@2 isr=- elr=1,2 last=2"
    world.assign(1, first, "u", kept_records=True)
    assert world.show("u") == "leader=1@3 isr=1 elr=2", "and leads at once"


def test_a_replica_that_begins_anew_is_not_elected_as_the_last_leader() -> None:
    """What it had is gone, and with it the reason to elect it before all others."""
    world = ClusterWorld(2)
    world.create("t", (1, 2))
    world.fence(2)
    world.alter_isr([1])
    world.restart_with(1, world.directory(1, 1))
    assert world.show() == "leader=-1@1 isr=- last=1"
    world.assign(1, world.directory(1, 1))
    world.unfence(1)
    world.unfence(2)
    assert world.show() == "leader=-1@1 isr=-"
    assert world.elect(ElectionType.UNCLEAN) is ErrorCode.NONE, "an operator can decide on that"


def test_a_leader_whose_directory_is_gone_begins_anew_as_a_follower() -> None:
    """The same incarnation registered again, without that directory."""
    world = ClusterWorld(2)
    world.create("t", (1, 2))
    world.register(1, log_dirs=[world.directory(1, 1)])
    world.assign(1, world.directory(1, 1))
    assert world.show() == "leader=2@1 isr=2"


def test_a_replica_that_cannot_be_opened_leads_no_more_and_is_shown_as_offline() -> None:
    """Its log is damaged, in a directory that works."""
    world = ClusterWorld(2)
    world.register(1, log_dirs=[world.directory(1)])
    world.create("t", (1, 2))
    assert world.assign(1, LOST_DIRECTORY, "t") is ErrorCode.NONE
    assert world.show("t") == "leader=2@1 isr=2 elr=1"
    assert offline_replicas(world.image, world.state("t")) == [1]
    world.fence(2)
    assert world.show("t") == "leader=-1@2 isr=- elr=1,2 last=2"
    world.assign(1, world.directory(1), "t", kept_records=True)
    assert world.show("t") == "leader=1@3 isr=1 elr=2", "it was repaired"
    assert world.assign(1, UNASSIGNED_DIRECTORY, "t") is ErrorCode.INVALID_REQUEST


def test_a_replica_that_moves_to_another_directory_stays_eligible() -> None:
    world = ClusterWorld(2)
    first, second = world.directory(1), world.directory(1, 1)
    world.register(1, log_dirs=[first, second])
    world.create("u", (1, 2))
    world.fence(1)
    assert world.show("u") == "leader=2@1 isr=2 elr=1"
    world.assign(1, second, "u")
    assert world.show("u") == "leader=2@1 isr=2 elr=1"


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_broker_that_comes_back_stays_eligible_in_the_directories_that_are_intact(is_fenced: bool) -> None:
    """One of its disks failed meanwhile, and works again: what was not synced may be gone there, and there alone."""
    world = ClusterWorld(2)
    first, second = world.directory(1), world.directory(1, 1)
    world.register(1, log_dirs=[first, second])
    world.create("kept", (1, 2))
    world.create("lost", (1, 2))
    world.assign(1, second, "lost")
    world.fence(2)
    if is_fenced:
        world.fence(1)
    epoch = world.image.brokers[1].epoch
    world.incarnations[1] += 1
    world.lose(1)
    world.register(1, log_dirs=[first, second], intact_broker_epoch=epoch, intact_log_dirs=[first])
    assert world.show("kept") == "leader=-1@1 isr=- elr=2,1 last=1"
    assert world.show("lost") == "leader=-1@1 isr=- elr=2 last=1"


def test_directories_that_an_earlier_incarnation_left_intact_are_not_trusted() -> None:
    world = ClusterWorld(2)
    world.create("t", (1, 2))
    earlier = world.image.brokers[1].epoch
    world.start(1, clean=True)
    world.fence(2)
    world.fence(1)
    assert world.show().endswith("isr=- elr=2,1 last=1")
    world.incarnations[1] += 1
    world.lose(1)
    world.register(1, intact_broker_epoch=earlier, intact_log_dirs=[world.directory(1)])
    assert world.show().endswith("isr=- elr=2 last=1")


def test_partitions_that_are_gone_are_left_out_of_updates() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    topic_id = world.image.topics["t"].topic_id
    keys = [(bytes(16), 0), (topic_id, 0), (topic_id, 1), (topic_id, 7)]
    (change,) = elections.leader_and_isr_updates(world.image, keys, world.defaults, removed=1)
    assert (change.topic_id, change.partition_id, change.leader) == (topic_id, 0, 2)


def test_replicas_are_assigned_to_directories_where_they_are_known_alone() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2))
    directory = world.directory(1)
    assert world.assign(1, directory) is ErrorCode.NONE
    assert world.assign(1, directory, partition=1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.assign(1, directory, partition=-1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.assign(3, world.directory(3)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_replica_in_a_directory_that_has_failed_leaves_the_isr_alone() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    failed = world.directory(3, 9)
    assert world.assign(3, failed, kept_records=True) is ErrorCode.NONE
    assert world.state().directory(3) == failed
    assert world.state().in_sync_replicas == (1, 2)
    assert world.state().leader == 1
