"""Share groups on the command line: their coordinator describes them, with their members and offsets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.cli.group.lag import LagSource
from penstock.cli.group.queries import describe_groups
from penstock.cli.group.view import describe_row
from penstock.cli.wire_client import WireClient
from penstock.client.operations.groups import Group
from penstock.client.view import BrokerView
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages import describe_share_group_offsets as offsets
from penstock.wire.messages.describe_groups import DescribeGroupsResponse
from penstock.wire.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from support.scripted_broker import ScriptedBroker
from unit.cli.scripted_groups import scripted_cluster

ROWS = [
    offsets.DescribeShareGroupOffsetsResponsePartition(1, 7, 0, 3),
    offsets.DescribeShareGroupOffsetsResponsePartition(0, -1, 0, -1),
    offsets.DescribeShareGroupOffsetsResponsePartition(2, 0, 0, 0, ErrorCode.LEADER_NOT_AVAILABLE),
]


@pytest.fixture
def world() -> Iterator[tuple[ScriptedBroker, WireClient]]:
    with scripted_cluster() as (cluster, client):
        cluster.broker.answers[ApiKey.DESCRIBE_GROUPS] = lambda _: DescribeGroupsResponse()
        yield cluster.broker, client


def test_a_share_group_with_its_members_and_offsets(world: tuple[ScriptedBroker, WireClient]) -> None:
    broker, client = world
    reads = Assignment([TopicPartitions(bytes(16), "orders", [1, 0])])
    members = [Member(name, None, 2, "reader", "/10.0.0.1", ["orders"], reads) for name in ("b", "a")]
    broker.answers[ApiKey.SHARE_GROUP_DESCRIBE] = lambda _: ShareGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id="shared", group_state="Stable", assignor_name="simple", members=members),
            DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, "not a share group", "other"),
        ]
    )
    topic = offsets.DescribeShareGroupOffsetsResponseTopic("orders", bytes(16), ROWS)
    broker.answers[ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS] = lambda _: offsets.DescribeShareGroupOffsetsResponse(
        groups=[offsets.DescribeShareGroupOffsetsResponseGroup("shared", [topic])]
    )
    described = describe_groups(client, ["shared", "other"])
    assert list(described) == ["shared"]
    row = describe_row(described["shared"], LagSource(client).measure(described.values())["shared"])
    assert (row["type"], row["state"], row["assignor"], row["coordinator"], row["lag"]) == (
        "share",
        "Stable",
        "simple",
        1,
        3,
    )
    assert [(member["member_id"], member["host"]) for member in row["members"]] == [
        ("a", "10.0.0.1"),
        ("b", "10.0.0.1"),
    ]
    shown = [
        (each["partition"], each["committed_offset"], each["lag"], each["member_id"]) for each in row["partitions"]
    ]
    assert shown == [(0, None, None, None), (1, 7, 3, None)]


def test_a_share_group_whose_coordinator_was_just_lost_has_no_partitions(
    world: tuple[ScriptedBroker, WireClient],
) -> None:
    _, client = world
    lost = Group("shared", "share", "Stable", coordinator=BrokerView(1, "127.0.0.1", 1))
    assert LagSource(client).measure([lost])["shared"].partitions == []
