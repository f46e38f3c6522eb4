"""Levels of features: how a cluster begins, what can be raised, what can be taken back."""

from __future__ import annotations

import pytest
from metadata_world import ClusterWorld

from penstock.core.metadata.configs import change_configs
from penstock.core.metadata.elections import leader_and_isr_updates
from penstock.core.metadata.features import (
    GROUP_VERSION,
    KRAFT_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    FeatureUpdate,
    UpgradeType,
    first_records,
    level_of,
    levels_of,
    update_features,
)
from penstock.core.metadata.image import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    Image,
    ResourceType,
)
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.metadata_records import (
    ConfigRecord,
    ControllerFeature,
    FeatureLevelRecord,
    RegisterControllerRecord,
)

MINIMUM = "min.insync.replicas"


def test_a_cluster_begins_as_those_of_kafka_43_do() -> None:
    image = Image()
    for record in first_records(image, 2):
        image.replay(record)
    assert levels_of(image, 0) == {
        METADATA_VERSION: 30,
        ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
        TRANSACTION_VERSION: 2,
        GROUP_VERSION: 1,
        SHARE_VERSION: 1,
        STREAMS_VERSION: 1,
    }
    assert image.overrides(ResourceType.BROKER, "") == {MINIMUM: "2"}
    assert first_records(image, 2) == []


def update(world: ClusterWorld, *updates: FeatureUpdate, voters: tuple[int, ...] = ()) -> None:
    world.carry_out(update_features(world.image, updates, SUPPORTED_FEATURES, 2, voters))


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (FeatureUpdate(METADATA_VERSION, 31), "supports 7 to 30"),
        (FeatureUpdate(METADATA_VERSION, 29), "downgrade to be asked"),
        (FeatureUpdate(METADATA_VERSION, 29, UpgradeType.SAFE_DOWNGRADE), "might lose"),
        (FeatureUpdate(METADATA_VERSION, 22, UpgradeType.UNSAFE_DOWNGRADE), "might lose"),
        (FeatureUpdate(METADATA_VERSION, -1), "below 0"),
        (FeatureUpdate(METADATA_VERSION, 30, 9), "upgrade type"),
        (FeatureUpdate("unheard.of", 1), "supports 0 to 0"),
        (FeatureUpdate("unheard.of", 1, UpgradeType.SAFE_DOWNGRADE), "cannot go up"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(wanted: FeatureUpdate, reason: str) -> None:
    world = ClusterWorld(2)
    before = dict(world.image.features)
    with pytest.raises(ApiError, match=reason) as caught:
        update(world, FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, UpgradeType.SAFE_DOWNGRADE), wanted)
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert world.image.features == before, "all or nothing"


def test_levels_that_changed_no_record_can_be_taken_back() -> None:
    world = ClusterWorld(2)
    world.apply([FeatureLevelRecord(METADATA_VERSION, 29)])
    update(world, FeatureUpdate(METADATA_VERSION, 24, UpgradeType.SAFE_DOWNGRADE))
    assert world.image.features[METADATA_VERSION] == 24
    update(world, FeatureUpdate(METADATA_VERSION, 27))
    assert world.image.features[METADATA_VERSION] == 27


def test_a_log_without_a_group_version_has_the_one_of_its_metadata_version() -> None:
    world = ClusterWorld(1)
    del world.image.features[GROUP_VERSION]
    assert level_of(world.image, GROUP_VERSION) == levels_of(world.image, 0)[GROUP_VERSION] == 1
    world.apply([FeatureLevelRecord(METADATA_VERSION, 21)])
    assert level_of(world.image, GROUP_VERSION) == 0


def test_the_consumer_protocol_stays_off_once_it_was_turned_off() -> None:
    world = ClusterWorld(1)
    del world.image.features[GROUP_VERSION]
    update(world, FeatureUpdate(GROUP_VERSION, 0, UpgradeType.SAFE_DOWNGRADE))
    again = Image()
    for record in world.image.snapshot():
        again.replay(record)
    assert level_of(again, GROUP_VERSION) == 0
    assert GROUP_VERSION not in levels_of(again, 0), "what is off is not among the levels"
    update(world, FeatureUpdate(GROUP_VERSION, 1))
    assert level_of(world.image, GROUP_VERSION) == 1


@pytest.mark.parametrize("current", [0, 1])
def test_the_kraft_version_is_reported_and_not_changed_by_a_level(current: int) -> None:
    world = ClusterWorld(1)
    assert levels_of(world.image, current).get(KRAFT_VERSION, 0) == current
    kind = UpgradeType.SAFE_DOWNGRADE if current else UpgradeType.UPGRADE
    with pytest.raises(ApiError, match="since the controllers' storage was formatted"):
        update_features(
            world.image, [FeatureUpdate(KRAFT_VERSION, 1 - current, kind)], SUPPORTED_FEATURES, 2, (), current
        )
    unchanged = update_features(
        world.image, [FeatureUpdate(KRAFT_VERSION, current)], SUPPORTED_FEATURES, 2, (), current
    )
    assert not unchanged.records


def test_eligible_leader_replicas_fix_the_minimum_for_all_brokers() -> None:
    world = ClusterWorld(2)
    world.apply([FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, 0)])
    world.apply([ConfigRecord(ResourceType.BROKER, "", MINIMUM, None)])
    world.apply(change_configs(world.image, ResourceType.BROKER, "1", {MINIMUM: "3"}))
    update(world, FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 1))
    assert world.image.overrides(ResourceType.BROKER, "") == {MINIMUM: "2"}
    assert world.image.overrides(ResourceType.BROKER, "1") == {}
    for name, after in (("1", {MINIMUM: "3"}), ("", {})):
        with pytest.raises(ApiError) as caught:
            change_configs(world.image, ResourceType.BROKER, name, after)
        assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("is_eligible", [True, False])
def test_eligible_leader_replicas_stay_on_while_a_partition_waits_for_them(is_eligible: bool) -> None:
    world = ClusterWorld(3, min_insync_replicas=2 if is_eligible else 1)
    world.create("t", (1, 2))
    world.fence(2)
    if not is_eligible:
        world.alter_isr([1])
    world.restart_with(1, world.directory(1))
    shown = world.show()
    assert shown == ("leader=-1@1 isr=- elr=2 last=1" if is_eligible else "leader=-1@1 isr=- last=1")
    with pytest.raises(ApiError, match="t-0 has no in-sync replica") as caught:
        update(world, FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, UpgradeType.SAFE_DOWNGRADE))
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    update(world, FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, UpgradeType.UNSAFE_DOWNGRADE))
    world.start(3)
    world.apply([*leader_and_isr_updates(world.image, list(world.image.leaderless), world.defaults)])
    assert world.show() == shown, "nothing is forgotten as long as there is no leader"
    if is_eligible:
        world.restart_with(2, world.directory(2))
        assert world.show() == "leader=-1@1 isr=- last=1", "but that one may have lost records"
    world.unfence(1)
    assert world.show() == "leader=1@2 isr=1 recovering"
    update(world, FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 1))
    update(world, FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, UpgradeType.SAFE_DOWNGRADE))


@pytest.mark.parametrize("clean", [True, False])
def test_a_partition_without_a_leader_knows_who_was_last_when_eligible_leader_replicas_are_switched_on(
    clean: bool,
) -> None:
    world = ClusterWorld(2)
    world.apply([FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, 0)])
    world.create("t", (1, 2))
    world.fence(2, 1)
    assert world.show() == "leader=-1@1 isr=1"
    update(world, FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 1))
    world.unfence(2)
    assert world.show() == "leader=-1@1 isr=1"
    if not clean:
        world.restart_with(1, world.directory(1))
        assert world.show() == "leader=-1@1 isr=- last=1"
    world.unfence(1)
    assert world.show() == ("leader=1@2 isr=1" if clean else "leader=1@2 isr=1 recovering")


def test_eligible_leader_replicas_need_a_metadata_version() -> None:
    world = ClusterWorld(1)
    world.apply([FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, 0), FeatureLevelRecord(METADATA_VERSION, 22)])
    with pytest.raises(ApiError, match=r"needs metadata\.version 23"):
        update(world, FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 1))
    update(world, FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 1), FeatureUpdate(METADATA_VERSION, 25))
    assert world.image.eligible_leader_replicas_enabled


def test_every_node_must_support_a_level() -> None:
    world = ClusterWorld(1)
    world.apply([FeatureLevelRecord(METADATA_VERSION, 25)])
    old = [ControllerFeature(METADATA_VERSION, 7, 26)]
    world.apply([RegisterControllerRecord(controller_id=100, features=old)])
    with pytest.raises(ApiError, match="controller 100 supports 7 to 26"):
        update(world, FeatureUpdate(METADATA_VERSION, 27))
    with pytest.raises(ApiError, match="controller 101 has not registered"):
        update(world, FeatureUpdate(METADATA_VERSION, 26), voters=(100, 101))
    update(world, FeatureUpdate(METADATA_VERSION, 26), voters=(100,))
