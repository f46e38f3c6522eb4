"""Links and mirror topics in the metadata: made together, promoted in a new leader epoch, rebuilt from a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from metadata_world import ClusterWorld

from penstock.core.metadata import link_decisions
from penstock.core.metadata.features import (
    LINK_VERSION,
    SUPPORTED_FEATURES,
    FeatureUpdate,
    UpgradeType,
    enable_links,
    update_features,
)
from penstock.core.metadata.image import Image
from penstock.core.metadata.link_decisions import MirrorOutcome, SourceTopic
from penstock.core.metadata.links import MirrorState
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.raft.applied_image import differences
from penstock.wire.messages.broker_registration import Feature
from penstock.wire.messages.metadata_records import (
    LinkRecord,
    PartitionChangeRecord,
    RemoveLinkRecord,
    RemoveTopicRecord,
)

LINK = LinkRecord(
    link_id=b"l" * 16,
    name="eu",
    source_cluster_id="theirs",
    topics=["*"],
    configs=link_decisions.config_rows({"a": "b"}),
)
ORDERS = SourceTopic("orders", b"o" * 16, 2, {})


def world_with_link(brokers: int = 2) -> ClusterWorld:
    world = ClusterWorld(brokers)
    world.carry_out(link_decisions.create_link(world.image, LINK, "ours", []))
    return world


def update(
    world: ClusterWorld,
    *found: SourceTopic,
    partitions_max: int = 100,
    check_growth: Callable[[str, int], None] = lambda *_: None,
) -> list[MirrorOutcome]:
    outcomes: list[MirrorOutcome] = world.carry_out(
        link_decisions.update_mirrors(
            world.image,
            LINK.link_id,
            found,
            2,
            partitions_max,
            lambda partitions, factor: [tuple(range(1, factor + 1))] * partitions,
            lambda _: None,
            lambda *_: None,
            check_growth,
            lambda: b"n" * 16,
            world.offset,
        )
    )
    return outcomes


def refuses(code: ErrorCode) -> pytest.RaisesExc[ApiError]:
    return pytest.RaisesExc(ApiError, check=lambda error: error.code == code)


def check_writable(image: Image, epoch: int, partition: int = 0) -> None:
    topic_id = image.topics["orders"].topic_id
    image.links.check_writable(topic_id, TopicPartition("orders", partition), epoch)


def test_a_mirror_has_the_sources_id_and_is_read_only_at_once() -> None:
    world = world_with_link()
    assert update(world, ORDERS) == [MirrorOutcome("orders")]
    assert world.image.topics["orders"].topic_id == ORDERS.topic_id
    assert len(world.image.topics["orders"].partitions) == 2
    with pytest.raises(ApiError, match="link eu") as refused:
        check_writable(world.image, 0)
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    # The same again changes nothing.
    before = world.offset
    assert update(world, ORDERS) == [MirrorOutcome("orders")]
    assert world.offset == before


def test_partitions_that_are_added_at_the_source_follow() -> None:
    world = world_with_link()
    update(world, ORDERS)
    update(world, ORDERS._replace(partitions=5))
    assert len(world.image.topics["orders"].partitions) == 5
    update(world, ORDERS._replace(partitions=3))
    assert len(world.image.topics["orders"].partitions) == 5


def test_a_link_mirrors_a_bounded_number_of_partitions() -> None:
    world = world_with_link()
    more = [SourceTopic(name, name.encode() * 16, 2, {}) for name in "abc"]
    outcomes = update(world, *more, ORDERS._replace(partitions=1), partitions_max=5)
    assert [one.error for one in outcomes] == [0, 0, ErrorCode.POLICY_VIOLATION, 0]
    assert "link.partitions.max" in (outcomes[2].message or "")
    grown = more[0]._replace(partitions=3)
    assert [one.error for one in update(world, grown, partitions_max=5)] == [ErrorCode.POLICY_VIOLATION]
    assert len(world.image.topics["a"].partitions) == 2
    # What is promoted is not mirrored any more.
    world.apply(link_decisions.stop_mirror(world.image, ORDERS.topic_id))
    assert update(world, grown, partitions_max=5) == [MirrorOutcome("a")]
    assert len(world.image.topics["a"].partitions) == 3


def test_mirrors_grow_by_the_rules_for_topics() -> None:
    world = world_with_link()
    update(world, ORDERS)

    def at_most_three(_: str, partitions: int) -> None:
        if partitions > 3:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "more than three")

    (refused,) = update(world, ORDERS._replace(partitions=4), check_growth=at_most_three)
    assert refused == MirrorOutcome("orders", ErrorCode.POLICY_VIOLATION, "more than three")
    assert len(world.image.topics["orders"].partitions) == 2
    assert update(world, ORDERS._replace(partitions=3), check_growth=at_most_three) == [MirrorOutcome("orders")]


def test_a_topic_of_an_id_that_was_deleted_begins_in_a_higher_epoch() -> None:
    world = world_with_link()
    update(world, ORDERS)
    for _ in range(5):
        world.apply([PartitionChangeRecord(partition_id=0, topic_id=ORDERS.topic_id, leader=1)])
    before = world.image.topics["orders"].partitions[0].leader_epoch
    world.apply([RemoveTopicRecord(topic_id=ORDERS.topic_id)])
    update(world, ORDERS)
    assert world.image.topics["orders"].topic_id == ORDERS.topic_id
    assert world.image.topics["orders"].partitions[0].leader_epoch > before


def test_topics_of_this_cluster_and_recreated_ones_are_left_alone() -> None:
    world = world_with_link()
    update(world, ORDERS)
    (recreated,) = update(world, ORDERS._replace(topic_id=b"x" * 16))
    assert recreated.error == ErrorCode.INCONSISTENT_TOPIC_ID
    world.image.links.mirrors.clear()
    (own,) = update(world, ORDERS)
    assert own.error == ErrorCode.TOPIC_ALREADY_EXISTS
    assert update(world, SourceTopic("_audit", b"a" * 16, 1, {}))[0].error == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_an_id_that_is_taken_gets_another() -> None:
    world = world_with_link()
    update(world, ORDERS, ORDERS._replace(name="copies"))
    assert {topic.topic_id for topic in world.image.topics.values()} == {b"o" * 16, b"n" * 16}


def test_a_promoted_topic_is_writable_in_a_new_leader_epoch_only() -> None:
    world = world_with_link()
    update(world, ORDERS)
    epochs = [one.leader_epoch for one in world.image.topics["orders"].partitions]
    names: Sequence[str] = world.carry_out(link_decisions.begin_promotion(world.image, "eu", None, 77))
    assert names == ["orders"]
    with refuses(ErrorCode.POLICY_VIOLATION):
        check_writable(world.image, epochs[0])
    world.apply(link_decisions.stop_mirror(world.image, ORDERS.topic_id))
    assert [one.leader_epoch for one in world.image.topics["orders"].partitions] == [epoch + 1 for epoch in epochs]
    with refuses(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        check_writable(world.image, epochs[0])
    check_writable(world.image, epochs[0] + 1)
    assert world.image.links.stopped_epoch(ORDERS.topic_id, 0) == epochs[0] + 1
    with refuses(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        link_decisions.chosen_mirrors(world.image, "eu", ["orders"])
    # A topic that was promoted is no mirror any more: what the source has besides is reported.
    (late,) = update(world, ORDERS._replace(partitions=9))
    assert (late.error, "9 partitions" in (late.message or "")) == (ErrorCode.POLICY_VIOLATION, True)
    assert update(world, ORDERS._replace(partitions=9, topic_id=b"x" * 16)) == [MirrorOutcome("orders")]
    assert update(world, ORDERS) == [MirrorOutcome("orders")]
    assert len(world.image.topics["orders"].partitions) == 2


def test_a_canceled_promotion_mirrors_on_and_the_next_one_has_another_id() -> None:
    world = world_with_link()
    update(world, ORDERS)
    world.carry_out(link_decisions.begin_promotion(world.image, "eu", ["orders"], 77))
    world.carry_out(link_decisions.cancel_promotion(world.image, "eu", None))
    assert world.image.links.mirrors[ORDERS.topic_id].state == MirrorState.MIRRORING
    world.carry_out(link_decisions.begin_promotion(world.image, "eu", ["orders"], 78))
    assert world.image.links.mirrors[ORDERS.topic_id].promotion_id == 78


def test_a_canceled_promotion_skips_topics_that_are_promoted_already() -> None:
    world = world_with_link()
    late = SourceTopic("late", b"t" * 16, 1, {})
    update(world, ORDERS, late)
    world.carry_out(link_decisions.begin_promotion(world.image, "eu", None, 77))
    world.apply(link_decisions.stop_mirror(world.image, ORDERS.topic_id))
    canceled = world.carry_out(link_decisions.cancel_promotion(world.image, "eu", ["late", "orders", "deleted"]))
    assert [mirror.topic_id for mirror in canceled] == [late.topic_id]
    assert world.image.links.mirrors[late.topic_id].state == MirrorState.MIRRORING
    assert world.image.links.mirrors[ORDERS.topic_id].state == MirrorState.STOPPED
    assert link_decisions.cancel_promotion(world.image, "eu", ["orders"]).records == []
    with refuses(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        link_decisions.cancel_promotion(world.image, "eu", ["deleted"])


def test_links_that_cannot_be_are_refused() -> None:
    world = world_with_link()
    image = world.image
    other = LINK._replace(name="other", link_id=b"m" * 16)
    with refuses(ErrorCode.DUPLICATE_RESOURCE):
        link_decisions.create_link(image, LINK, "ours", [])
    with refuses(ErrorCode.INVALID_REQUEST):
        link_decisions.create_link(image, other, "theirs", [])
    with refuses(ErrorCode.INVALID_REQUEST):
        link_decisions.create_link(image, other._replace(origins=["ours"]), "ours", [])
    update(world, ORDERS)
    with refuses(ErrorCode.TOPIC_ALREADY_EXISTS):
        link_decisions.create_link(image, other, "ours", ["orders", "free"])
    with refuses(ErrorCode.RESOURCE_NOT_FOUND):
        link_decisions.find_link(image, "other")


def test_a_link_with_mirrors_is_not_deleted() -> None:
    world = world_with_link()
    update(world, ORDERS)
    with refuses(ErrorCode.INVALID_REQUEST):
        link_decisions.delete_link(world.image, "eu")
    world.apply([RemoveTopicRecord(topic_id=ORDERS.topic_id)])
    assert world.image.links.mirrors == {}
    world.carry_out(link_decisions.delete_link(world.image, "eu"))
    assert world.image.links.links == {}


def test_producer_ids_of_both_clusters_stay_apart() -> None:
    world = world_with_link()
    first = world.image.next_producer_id
    assert first >= 1 << 40
    world.apply(link_decisions.raise_producer_ids(world.image, first + 5))
    assert world.image.next_producer_id == first + 6
    assert link_decisions.raise_producer_ids(world.image, first) == []
    # Ids of another cluster's region are its own to give out, and what a broken source sends exhausts nothing.
    for foreign in (first + (1 << 40), first + (1 << 40) + 5, (first | ((1 << 40) - 1)), 2**62, 2**63 - 1):
        assert link_decisions.raise_producer_ids(world.image, foreign) == []


def test_a_snapshot_has_links_and_mirrors_and_a_newer_one_removes_them() -> None:
    world = world_with_link()
    update(world, ORDERS)
    world.carry_out(link_decisions.pause_link(world.image, "eu", is_paused=True))
    copy = Image()
    for record in world.image.snapshot():
        copy.replay(record)
    assert copy.links.links == world.image.links.links
    assert copy.links.mirrors == world.image.links.mirrors
    assert copy.links.links[LINK.link_id].is_paused
    gone = differences(copy, Image())
    assert RemoveLinkRecord(link_id=LINK.link_id) in gone
    assert RemoveTopicRecord(topic_id=ORDERS.topic_id) in gone


def test_links_need_nodes_that_can_read_them() -> None:
    """Neither earlier versions nor Kafka's controllers know these records: they would stop at one."""
    world = ClusterWorld(2)
    earlier = {name: levels for name, levels in SUPPORTED_FEATURES.items() if name != LINK_VERSION}
    with refuses(ErrorCode.UNSUPPORTED_VERSION):
        enable_links(world.image, earlier, ())
    with refuses(ErrorCode.UNSUPPORTED_VERSION):
        enable_links(world.image, SUPPORTED_FEATURES, (1,))
    world.register(2, features=[Feature(name, *levels) for name, levels in earlier.items()])
    with pytest.raises(ApiError, match="broker 2 supports 0 to 0"):
        enable_links(world.image, SUPPORTED_FEATURES, ())
    world.register(2)
    world.apply(enable_links(world.image, SUPPORTED_FEATURES, ()))
    assert enable_links(world.image, SUPPORTED_FEATURES, ()) == []
    # From now on none that could not read them joins, and there is no way back.
    with pytest.raises(ApiError, match="supports 0 to 0"):
        world.register(2, features=[Feature(name, *levels) for name, levels in earlier.items()])
    back = [FeatureUpdate(LINK_VERSION, 0, UpgradeType.UNSAFE_DOWNGRADE)]
    with pytest.raises(ApiError, match="may have links"):
        update_features(world.image, back, SUPPORTED_FEATURES, 1)
