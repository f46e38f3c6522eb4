"""KIP-951: which errors name the leader, and where it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.metadata.image import Image, PartitionState, partition_record
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.runtime.replication.leader_hints import LeaderHints
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.metadata_records import BrokerEndpoint, RegisterBrokerRecord, TopicRecord

TOPIC_ID = b"orders--orders--"


def hints() -> LeaderHints:
    """Partition 0 is led by broker 2, partition 1 by broker 3, which has no listener for clients."""
    image = Image()
    image.replay(TopicRecord("orders", TOPIC_ID))
    for index, leader in enumerate((2, 3)):
        state = PartitionState((leader,), (leader,), leader, 7 + index, 0, (bytes(16),))
        image.replay(partition_record(TOPIC_ID, index, state))
    for broker_id, listener in ((2, "CLIENTS"), (3, "OTHERS")):
        endpoint = BrokerEndpoint(listener, f"host-{broker_id}", 9092, 0)
        image.replay(RegisterBrokerRecord(broker_id=broker_id, end_points=[endpoint], rack="r", fenced=False))
    partitions: Any = SimpleNamespace(image=image)
    partitions.state_of = lambda *args, **options: Partitions.state_of(partitions, *args, **options)
    return LeaderHints(partitions)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
def test_the_leader_comes_with_its_epoch_and_address(code: ErrorCode) -> None:
    made = hints()
    assert made.leader(code, "orders", ZERO_UUID, 0, by_id=False) == (2, 7)
    assert made.leader(code, "", TOPIC_ID, 1, by_id=True) == (3, 8)
    assert made.leader(code, "", TOPIC_ID, 0, by_id=True) == (2, 7)
    assert made.endpoints("CLIENTS", lambda *row: row) == [(2, "host-2", 9092, "r")]


@pytest.mark.parametrize(
    ("code", "topic_id", "partition"),
    [
        (ErrorCode.NONE, TOPIC_ID, 0),
        (ErrorCode.KAFKA_STORAGE_ERROR, TOPIC_ID, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, TOPIC_ID, 2),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, TOPIC_ID, -1),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"unknown-unknown-", 0),
    ],
)
def test_other_errors_and_unknown_partitions_have_no_leader(code: ErrorCode, topic_id: bytes, partition: int) -> None:
    made = hints()
    assert made.leader(code, "", topic_id, partition, by_id=True) == (-1, -1)
    assert made.endpoints("CLIENTS", lambda *row: row) == []
