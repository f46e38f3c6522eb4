"""Streams groups on the command line: their coordinator describes them, and other brokers have none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.cli.group.lag import GroupLag, PartitionLag
from penstock.cli.group.unlisted import StreamsSource
from penstock.cli.group.view import describe_row
from penstock.client.cluster import ClusterClient
from penstock.client.settings import read_settings
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from penstock.wire.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from support.scripted_broker import ScriptedBroker


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        found = FindCoordinatorResponse(
            coordinators=[Coordinator(name, 1, "127.0.0.1", broker.port) for name in ("app", "other")]
        )
        broker.answers[ApiKey.FIND_COORDINATOR] = lambda _: found
        yield broker


@pytest.fixture
def source(broker: ScriptedBroker) -> Iterator[StreamsSource]:
    with ClusterClient(read_settings({"bootstrap.servers": f"127.0.0.1:{broker.port}"})) as client:
        yield StreamsSource(client)


def test_members_read_the_sources_of_their_active_tasks(broker: ScriptedBroker, source: StreamsSource) -> None:
    rows = [Subtopology("0", ["lines"]), Subtopology("1", repartition_source_topics=[TopicInfo("words", 2)])]
    members = [
        Member("b", client_id="app", client_host="/10.0.0.1", assignment=Assignment([TaskIds("1", [1])])),
        Member("a", client_id="app", client_host="/10.0.0.1", assignment=Assignment([TaskIds("0", [0, 1])])),
    ]
    broker.answers[ApiKey.STREAMS_GROUP_DESCRIBE] = lambda _: StreamsGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id="app", group_state="Stable", topology=Topology(0, rows), members=members),
            DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, "not a streams group", "other"),
        ]
    )
    described = source.describe(["app", "other"])
    assert list(described) == ["app"]
    row = describe_row(described["app"], GroupLag([PartitionLag("words", 1, 5, 6, 1)]))
    assert (row["type"], row["state"], row["coordinator"], row["lag"]) == ("streams", "Stable", 1, 1)
    assert [member["member_id"] for member in row["members"]] == ["a", "b"]
    assert row["members"][0]["assignment"] == [{"topic": "lines", "partition": number} for number in (0, 1)]
    assert [each["member_id"] for each in row["partitions"]] == ["b"]


def test_a_group_without_topics_yet_is_described(broker: ScriptedBroker, source: StreamsSource) -> None:
    found = DescribedGroup(group_id="app", group_state="NotReady", members=[Member("a")])
    broker.answers[ApiKey.STREAMS_GROUP_DESCRIBE] = lambda _: StreamsGroupDescribeResponse(groups=[found])
    group = source.describe(["app"])["app"]
    assert (group.state, [member.assignment for member in group.members]) == ("NotReady", [()])


def test_streams_groups_are_listed_by_every_broker(broker: ScriptedBroker, source: StreamsSource) -> None:
    cluster = DescribeClusterResponse(brokers=[DescribeClusterBroker(1, "127.0.0.1", broker.port)])
    broker.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: cluster
    rows = [ListedGroup("app", "streams", "Stable", "streams"), ListedGroup("other", "consumer", "Empty", "classic")]
    broker.answers[ApiKey.LIST_GROUPS] = lambda _: ListGroupsResponse(groups=rows)
    assert source.names() == ["app"]


def test_brokers_without_streams_groups(source: StreamsSource) -> None:
    assert source.describe(["app"]) == {}
    assert source.names() == StreamsSource(None).names() == []
    assert StreamsSource(None).describe(["app"]) == {}
