"""Share groups on the command line: their coordinator describes them, and other brokers have none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.cli.group.unlisted import ShareSource
from penstock.cli.group.view import describe_row
from penstock.client.cluster import ClusterClient
from penstock.client.settings import read_settings
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages import describe_share_group_offsets as offsets
from penstock.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from penstock.wire.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from support.scripted_broker import ScriptedBroker

ROWS = [
    offsets.DescribeShareGroupOffsetsResponsePartition(1, 7, 0, 3),
    offsets.DescribeShareGroupOffsetsResponsePartition(0, -1, 0, -1),
    offsets.DescribeShareGroupOffsetsResponsePartition(2, 0, 0, 0, ErrorCode.LEADER_NOT_AVAILABLE),
]


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        found = FindCoordinatorResponse(
            coordinators=[Coordinator(name, 1, "127.0.0.1", broker.port) for name in ("shared", "other")]
        )
        broker.answers[ApiKey.FIND_COORDINATOR] = lambda _: found
        yield broker


@pytest.fixture
def source(broker: ScriptedBroker) -> Iterator[ShareSource]:
    with ClusterClient(read_settings({"bootstrap.servers": f"127.0.0.1:{broker.port}"})) as client:
        yield ShareSource(client)


def test_a_share_group_with_its_members_and_offsets(broker: ScriptedBroker, source: ShareSource) -> None:
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
    described = source.describe(["shared", "other"])
    assert list(described) == ["shared"]
    row = describe_row(*described["shared"])
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


def test_share_groups_are_listed_by_every_broker(broker: ScriptedBroker, source: ShareSource) -> None:
    cluster = DescribeClusterResponse(brokers=[DescribeClusterBroker(1, "127.0.0.1", broker.port)])
    broker.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: cluster
    rows = [ListedGroup("shared", "share", "Stable", "share"), ListedGroup("other", "consumer", "Empty", "classic")]
    broker.answers[ApiKey.LIST_GROUPS] = lambda _: ListGroupsResponse(groups=rows)
    assert source.names() == ["shared"]


def test_brokers_without_share_groups(source: ShareSource) -> None:
    assert source.describe(["shared"]) == {}
    assert source.names() == ShareSource(None).names() == []
    assert ShareSource(None).describe(["shared"]) == {}
