"""Topics of a lost cluster come back under their ids, and nothing that exists is touched."""

from __future__ import annotations

from collections.abc import Sequence

from metadata_world import ClusterWorld

from penstock.core.metadata.restore import RestoredPartition, RestoredTopic, RestoreOutcome, restore_topics
from penstock.model.errors import ErrorCode
from penstock.wire.messages.metadata_records import PartitionChangeRecord

TIERED = {"remote.storage.enable": "true"}
ORDERS = RestoredTopic("orders", b"o" * 16, 2, [RestoredPartition(120, 5), RestoredPartition(0, 0)], TIERED)


def restore(world: ClusterWorld, wanted: Sequence[RestoredTopic], next_producer_id: int = 0) -> list[RestoreOutcome]:
    outcomes: list[RestoreOutcome] = world.carry_out(
        restore_topics(
            world.image,
            wanted,
            next_producer_id,
            lambda partitions, factor: [tuple(range(1, factor + 1))] * partitions,
            lambda _: None,
            lambda *_: None,
        )
    )
    return outcomes


def test_a_topic_comes_back_with_its_id_and_continues_its_epochs() -> None:
    world = ClusterWorld(2)
    assert restore(world, [ORDERS], 3000) == [RestoreOutcome("orders")]
    topic = world.image.topics_by_id[b"o" * 16]
    assert [(one.leader, one.leader_epoch, one.restored_offset) for one in topic.partitions] == [(1, 5, 120), (1, 0, 0)]
    assert world.image.overrides(2, "orders") == TIERED  # type: ignore[arg-type]
    assert world.image.next_producer_id == 3000
    # A change of leaders does not make it forget where it starts.
    world.apply([PartitionChangeRecord(partition_id=0, topic_id=b"o" * 16, leader=2)])
    after = topic.partitions[0]
    assert (after.leader, after.leader_epoch, after.restored_offset) == (2, 6, 120)


def test_names_and_ids_that_are_taken_are_refused() -> None:
    world = ClusterWorld(2)
    restore(world, [ORDERS])
    again, renamed = ORDERS, ORDERS._replace(name="other")
    codes = [one.error for one in restore(world, [again, renamed, ORDERS._replace(topic_id=b"p" * 16)])]
    assert codes == [ErrorCode.TOPIC_ALREADY_EXISTS] * 3
    twice = ORDERS._replace(name="new", topic_id=b"n" * 16)
    assert [one.error for one in restore(world, [twice, twice])] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


def test_what_cannot_be_a_restored_topic_is_refused() -> None:
    world = ClusterWorld(2)
    wrong = [
        ORDERS._replace(configs={}),
        ORDERS._replace(partitions=[]),
        ORDERS._replace(partitions=[RestoredPartition(-1, 0)]),
        ORDERS._replace(topic_id=bytes(16)),
        ORDERS._replace(name="__cluster_metadata"),
    ]
    outcomes = [restore(world, [one])[0].error for one in wrong]
    assert ErrorCode.NONE not in outcomes
    assert not world.image.topics


def test_producers_whose_ids_were_given_out_again_do_not_keep_their_state() -> None:
    world = ClusterWorld(2)
    restore(world, [ORDERS], 3000)
    (second,) = restore(world, [ORDERS._replace(name="second", topic_id=b"s" * 16)], 2000)
    assert second.kept_producer_id == 3000
    assert world.image.topics["second"].partitions[0].kept_producer_id == 3000
    assert world.image.topics["orders"].partitions[0].kept_producer_id == 0
    assert world.image.next_producer_id == 3000, "ids are never given out twice"


def test_a_topic_of_one_partition_comes_back_with_it() -> None:
    world = ClusterWorld(2)
    assert restore(world, [ORDERS._replace(partitions=[RestoredPartition(0, 0)])]) == [RestoreOutcome("orders")]
    assert len(world.image.topics["orders"].partitions) == 1
