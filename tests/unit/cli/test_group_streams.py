"""Streams groups on the command line: their coordinator describes them, and other brokers have none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.cli.group.lag import GroupLag, PartitionLag
from penstock.cli.group.queries import describe_groups
from penstock.cli.group.view import describe_row
from penstock.cli.wire_client import WireClient
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_groups import DescribeGroupsResponse
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
from unit.cli.scripted_groups import scripted_cluster


@pytest.fixture
def world() -> Iterator[tuple[ScriptedBroker, WireClient]]:
    with scripted_cluster() as (cluster, client):
        cluster.broker.answers[ApiKey.DESCRIBE_GROUPS] = lambda _: DescribeGroupsResponse()
        yield cluster.broker, client


def test_members_read_the_sources_of_their_active_tasks(world: tuple[ScriptedBroker, WireClient]) -> None:
    broker, client = world
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
    described = describe_groups(client, ["app", "other"])
    assert list(described) == ["app"]
    row = describe_row(described["app"], GroupLag([PartitionLag("words", 1, 5, 6, 1)]))
    assert (row["type"], row["state"], row["coordinator"], row["lag"]) == ("streams", "Stable", 1, 1)
    assert [member["member_id"] for member in row["members"]] == ["a", "b"]
    assert row["members"][0]["assignment"] == [{"topic": "lines", "partition": number} for number in (0, 1)]
    assert [each["member_id"] for each in row["partitions"]] == ["b"]


def test_a_group_without_topics_yet_is_described(world: tuple[ScriptedBroker, WireClient]) -> None:
    broker, client = world
    found = DescribedGroup(group_id="app", group_state="NotReady", members=[Member("a")])
    broker.answers[ApiKey.STREAMS_GROUP_DESCRIBE] = lambda _: StreamsGroupDescribeResponse(groups=[found])
    group = describe_groups(client, ["app"])["app"]
    assert (group.state, [member.assignment for member in group.members]) == ("NotReady", [()])


def test_brokers_that_have_only_classic_groups(world: tuple[ScriptedBroker, WireClient]) -> None:
    _, client = world
    assert describe_groups(client, ["app"]) == {}
