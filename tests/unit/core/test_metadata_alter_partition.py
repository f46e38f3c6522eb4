"""Leaders change the in-sync replicas, and are refused when they do not know how things stand."""

from __future__ import annotations

from typing import Any

import pytest
from metadata_world import ClusterWorld

from penstock.core.metadata.alter_partition import alter_partition, pieces
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)


def test_the_answer_is_the_partition_as_it_is_now() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    answer = world.alter_isr([1, 2])
    assert (answer.error_code, list(answer.isr), answer.leader_id, answer.leader_epoch) == (0, [1, 2], 1, 0)
    assert answer.partition_epoch == world.state().partition_epoch == 1
    again = world.alter_isr([1, 2])
    assert (again.error_code, again.partition_epoch) == (0, 1), "nothing changed, so nothing was written"


@pytest.mark.parametrize(
    ("in_sync", "changes", "code"),
    [
        ([1, 2], {"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ([1, 2], {"broker_id": 2}, ErrorCode.INVALID_REQUEST),
        ([1, 4], {}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 5}, ErrorCode.INVALID_REQUEST),
        ([1, 3], {}, ErrorCode.INELIGIBLE_REPLICA),
        ([1, 2], {"partition_index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (
            [1],
            {"new_isr_with_epochs": [BrokerState(1, -1), BrokerState(2, 777)]},
            ErrorCode.INELIGIBLE_REPLICA,
        ),
    ],
)
def test_what_cannot_be_is_refused(in_sync: list[int], changes: dict[str, Any], code: ErrorCode) -> None:
    world = ClusterWorld(4)
    world.create("t", (1, 2, 3))
    world.fence(3)
    before = world.state()
    assert world.alter_isr(in_sync, **changes).error_code == code
    assert world.state() == before


def test_a_replica_that_restarted_meanwhile_is_not_in_sync() -> None:
    world = ClusterWorld(2)
    world.create("t", (1, 2))
    world.alter_isr([1])
    old = world.image.brokers[2].epoch
    world.start(2)
    answer = world.alter_isr([1, 2], new_isr_with_epochs=[BrokerState(1, -1), BrokerState(2, old)])
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert world.alter_isr([1, 2]).error_code == ErrorCode.NONE


def request_of(
    world: ClusterWorld, *rows: AlterPartitionRequestPartitionData, topic_id: bytes
) -> AlterPartitionRequest:
    return AlterPartitionRequest(1, world.image.brokers[1].epoch, [AlterPartitionRequestTopicData(topic_id, rows)])


def test_version_2_names_replicas_without_epochs() -> None:
    world = ClusterWorld(2)
    world.create("t", (1, 2))
    row = AlterPartitionRequestPartitionData(0, 0, [1], (), 0, 0)
    request = request_of(world, row, topic_id=world.image.topics["t"].topic_id)
    world.carry_out(alter_partition(world.image, request, world.defaults))
    assert world.show() == "leader=1@0 isr=1"


@pytest.mark.parametrize("sizes", [[], [0], [3], [4], [9], [2, 2, 2], [1, 7, 0, 5], [4, 4]])
def test_a_big_request_is_taken_in_pieces(sizes: list[int]) -> None:
    rows = [[AlterPartitionRequestPartitionData(index) for index in range(size)] for size in sizes]
    topics = [AlterPartitionRequestTopicData(bytes([number]) * 16, row) for number, row in enumerate(rows)]
    found = list(pieces(AlterPartitionRequest(1, 2, topics), 4))
    assert all(piece[:2] == (1, 2) for piece in found)
    assert all(sum(len(topic.partitions) for topic in piece.topics) <= 4 for piece in found)
    named = [(topic.topic_id, row) for piece in found for topic in piece.topics for row in topic.partitions]
    assert named == [(topic.topic_id, row) for topic in topics for row in topic.partitions]
    assert len(found) <= 1 + sum(sizes) // 4


def test_a_partition_is_named_once_and_its_topic_is_known() -> None:
    world = ClusterWorld(2)
    world.create("t", (1, 2))
    row = AlterPartitionRequestPartitionData(0, 0, [1], (), 0, 0)
    request = request_of(world, row, row, topic_id=world.image.topics["t"].topic_id)
    (topic,) = alter_partition(world.image, request, world.defaults).response
    assert [one.error_code for one in topic.partitions] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    (topic,) = alter_partition(world.image, request_of(world, row, topic_id=b"x" * 16), world.defaults).response
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    with pytest.raises(ApiError) as caught:
        alter_partition(world.image, request._replace(broker_epoch=5000), world.defaults)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
