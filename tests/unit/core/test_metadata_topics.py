"""Topics are created where brokers can take them, under names that metrics can tell apart."""

from __future__ import annotations

from itertools import count

import pytest
from metadata_world import ClusterWorld

from penstock.core.metadata.topics import NewTopic, TopicDefaults, TopicOutcome, add_partitions, create_topics
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.metadata_records import RemoveTopicRecord


def create(world: ClusterWorld, *wanted: NewTopic) -> list[TopicOutcome]:
    ids = count(1)
    outcomes: list[TopicOutcome] = world.carry_out(
        create_topics(
            world.image,
            wanted,
            TopicDefaults(1, 1),
            lambda partitions, factor: [tuple(range(1, factor + 1))] * partitions,
            lambda _: None,
            lambda: bytes([*world.offset.to_bytes(4), next(ids)]) + bytes(11),
            lambda *_: None,
        )
    )
    return outcomes


def test_names_that_metrics_cannot_tell_apart_are_refused() -> None:
    world = ClusterWorld(1)
    outcomes = create(world, NewTopic("a.b"), NewTopic("a_b"), NewTopic("plain"))
    assert [one.error for one in outcomes] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]
    assert create(world, NewTopic("a_b"))[0].error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert create(world, NewTopic("a.b"))[0].error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert create(world, NewTopic("plain"))[0].error is ErrorCode.TOPIC_ALREADY_EXISTS
    world.apply([RemoveTopicRecord(world.image.topics["a.b"].topic_id)])
    assert create(world, NewTopic("a_b"))[0].error is ErrorCode.NONE


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_what_brokers_need_to_read_the_tier_is_not_tiered(name: str) -> None:
    world = ClusterWorld(1)
    (outcome,) = create(world, NewTopic(name, configs={"remote.storage.enable": "true"}))
    assert outcome.error is ErrorCode.INVALID_CONFIG
    assert create(world, NewTopic(name, configs={"remote.storage.enable": "false"}))[0].error is ErrorCode.NONE
    assert create(world, NewTopic("plain", configs={"remote.storage.enable": "true"}))[0].error is ErrorCode.NONE


@pytest.mark.parametrize(
    "name", ["__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata"]
)
def test_what_is_found_by_the_number_of_partitions_is_not_grown(name: str) -> None:
    world = ClusterWorld(1)
    create(world, NewTopic(name, 2), NewTopic("plain", 2))
    for total in (1, 2, 3):
        with pytest.raises(ApiError, match="keeps its 2 partitions") as caught:
            add_partitions(world.image, name, total, None, lambda partitions, _: [(1,)] * partitions)
        assert caught.value.code is ErrorCode.INVALID_PARTITIONS
    world.apply(add_partitions(world.image, "plain", 3, None, lambda partitions, _: [(1,)] * partitions))
    assert len(world.image.topics["plain"].partitions) == 3


def test_only_active_brokers_begin_in_sync() -> None:
    world = ClusterWorld(3)
    world.create("other", (1, 2))
    world.fence(2)
    world.heartbeat(1, want_shut_down=True)
    assert world.image.brokers[1].in_controlled_shutdown
    (outcome,) = create(world, NewTopic("t", assignments={0: (1, 2, 3)}))
    assert outcome.error is ErrorCode.NONE
    assert world.show() == "leader=3@0 isr=3"
    (refused,) = create(world, NewTopic("u", assignments={0: (1, 2)}))
    assert refused.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    world.apply(add_partitions(world.image, "t", 2, [(3, 2, 1)], lambda *_: []))
    assert world.show("t", 1) == "leader=3@0 isr=3"
    with pytest.raises(ApiError) as caught:
        add_partitions(world.image, "t", 3, [(1, 2, 2)], lambda *_: [])
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_brokers_of_each_partition_may_be_named_for_as_many_as_one_request_creates() -> None:
    world = ClusterWorld(1)
    few, many = (
        NewTopic(name, assignments={index: [1] for index in range(count)})
        for name, count in (("a", 6_000), ("b", 6_000))
    )
    assert [outcome.error for outcome in create(world, few, many)] == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
