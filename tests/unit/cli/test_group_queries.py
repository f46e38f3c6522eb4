"""Busy coordinators are waited for, other errors come at once with advice, and lost partitions are left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.cli.failures import CommandFailure
from penstock.cli.group import queries
from penstock.cli.wire_client import WireClient
from penstock.client.operations import routing
from penstock.client.operations.groups import CommittedOffset
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.wire.apis import ApiKey
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from penstock.wire.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from penstock.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from penstock.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from unit.cli.scripted_groups import ScriptedCluster, scripted_cluster

ORDERS = TopicPartition("orders", 0)
PLACE = {ORDERS: CommittedOffset(5, 2, "note")}

World = tuple[ScriptedCluster, WireClient]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "PAUSE_FIRST_S", 0.001)


@pytest.fixture
def world() -> Iterator[World]:
    with scripted_cluster() as made:
        yield made


def commits_with(cluster: ScriptedCluster, *codes: int) -> list[int]:
    """Answer commits with one code after the other; the last one stays."""
    left = [*codes]

    def answer(_: Any) -> OffsetCommitResponse:
        row = OffsetCommitResponsePartition(0, left.pop(0) if len(left) > 1 else left[0])
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("orders", partitions=[row])])

    cluster.broker.answers[ApiKey.OFFSET_COMMIT] = answer
    return left


def test_a_coordinator_that_loads_is_queried_again(world: World) -> None:
    cluster, client = world
    commits_with(cluster, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, 0)
    queries.commit_offsets(client, "billing", PLACE)
    sent = cluster.asked("OffsetCommit")
    assert len(sent) == len(cluster.asked("FindCoordinator")) == 3
    [topic] = sent[-1].topics
    assert (topic.name, *topic.partitions[0]) == ("orders", 0, 5, 2, "note")


def test_a_broker_that_loads_is_queried_for_its_groups_again(world: World) -> None:
    cluster, client = world
    answers = [
        ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ListGroupsResponse(groups=[ListedGroup("b", "consumer", "Empty", "Classic"), ListedGroup("a")]),
    ]
    cluster.broker.answers[ApiKey.LIST_GROUPS] = lambda _: answers.pop(0)
    listed = queries.list_groups(client)
    assert [(group.group_id, group.type, group.state) for group in listed] == [
        ("a", None, None),
        ("b", "classic", "Empty"),
    ]


def test_a_broker_that_does_not_list_its_groups_is_named(world: World) -> None:
    cluster, client = world
    refused = ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    cluster.broker.answers[ApiKey.LIST_GROUPS] = lambda _: refused
    with pytest.raises(CommandFailure, match="cannot list the groups of every broker"):
        queries.list_groups(client)


def test_it_is_not_queried_for_ever() -> None:
    with scripted_cluster(patience_s=0.1) as (cluster, client):
        commits_with(cluster, ErrorCode.NOT_COORDINATOR)
        with pytest.raises(CommandFailure, match="cannot set the offsets of group billing") as caught:
            queries.commit_offsets(client, "billing", PLACE)
        assert "NOT_COORDINATOR" in caught.value.why
        assert len(cluster.asked("OffsetCommit")) > 1


def test_other_errors_come_at_once_with_advice(world: World) -> None:
    cluster, client = world
    commits_with(cluster, ErrorCode.UNKNOWN_MEMBER_ID)
    with pytest.raises(CommandFailure, match="cannot set the offsets of group billing in orders-0") as caught:
        queries.commit_offsets(client, "billing", PLACE)
    assert "(UNKNOWN_MEMBER_ID); 0 of 1 partition set" in caught.value.why
    assert "`penstock group describe billing`" in caught.value.advice
    assert len(cluster.asked("OffsetCommit")) == 1


def test_each_group_that_cannot_be_deleted_has_its_reason(world: World) -> None:
    cluster, client = world
    rows = [DeletableGroupResult("a"), DeletableGroupResult("b", ErrorCode.NON_EMPTY_GROUP)]
    cluster.broker.answers[ApiKey.DELETE_GROUPS] = lambda _: DeleteGroupsResponse(results=rows)
    results = queries.delete_groups(client, ["b", "a"])
    assert results["a"] is None
    failure = results["b"]
    assert failure is not None
    assert (failure.message, failure.why) == (
        "cannot delete group b",
        "Broker: Non empty group (NON_EMPTY_GROUP)",
    )
    assert "`penstock group describe b`" in failure.advice


def test_offsets_that_members_still_read_are_not_deleted(world: World) -> None:
    cluster, client = world
    row = OffsetDeleteResponsePartition(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    answers = [
        OffsetDeleteResponse(ErrorCode.GROUP_ID_NOT_FOUND),
        OffsetDeleteResponse(topics=[OffsetDeleteResponseTopic("orders", [row])]),
    ]
    cluster.broker.answers[ApiKey.OFFSET_DELETE] = lambda _: answers.pop(0)
    with pytest.raises(CommandFailure, match="cannot delete offsets of group billing") as caught:
        queries.delete_offsets(client, "billing", [ORDERS])
    assert caught.value.advice == "`penstock group list` shows the groups"
    with pytest.raises(CommandFailure, match="cannot delete offsets of group billing in orders-0") as caught:
        queries.delete_offsets(client, "billing", [ORDERS])
    assert caught.value.why == "its members read orders (GROUP_SUBSCRIBED_TO_TOPIC)"


def test_ends_are_asked_only_of_partitions_with_a_leader(world: World) -> None:
    cluster, client = world
    cluster.leaders = {"orders": [1, -1]}
    asked = [ORDERS, TopicPartition("orders", 1), TopicPartition("gone", 0)]
    assert queries.end_offsets(client, asked) == {ORDERS: 20}
    assert queries.end_offsets(client, []) == {}


def test_groups_of_different_kinds_are_described_by_their_own_requests(world: World) -> None:
    """Kafka before 4.0 describes a group of another kind as a dead one; since then it is not found."""
    cluster, client = world
    # Version 0, one topic with partitions 1 and 0, no user data.
    assignment = b"\0\0" + b"\0\0\0\1" + b"\0\6orders" + b"\0\0\0\2\0\0\0\1\0\0\0\0" + b"\xff\xff\xff\xff"
    members = [
        DescribedGroupMember("m-2", None, "reader", "/10.0.0.1", b"", b"not an assignment"),
        DescribedGroupMember("m-1", "static", "reader", "/10.0.0.2", b"", assignment),
    ]
    cluster.broker.answers[ApiKey.DESCRIBE_GROUPS] = lambda _: DescribeGroupsResponse(
        groups=[
            DescribedGroup(0, None, "classic", "Stable", "consumer", "range", members),
            DescribedGroup(0, None, "modern", "Dead"),
            DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, None, "missing", "Dead"),
        ]
    )
    found = [
        ConsumerGroup(0, None, "modern", "Assigning", assignor_name="uniform"),
        ConsumerGroup(ErrorCode.GROUP_ID_NOT_FOUND, None, "missing"),
    ]
    cluster.broker.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = lambda _: ConsumerGroupDescribeResponse(groups=found)
    groups = queries.describe_groups(client, ["classic", "modern", "missing"])
    assert {name: (group.type, group.state, group.assignor) for name, group in groups.items()} == {
        "classic": ("classic", "Stable", "range"),
        "modern": ("consumer", "Assigning", "uniform"),
    }
    assert [(each.member_id, each.host, each.instance_id, each.assignment) for each in groups["classic"].members] == [
        ("m-1", "10.0.0.2", "static", (ORDERS, TopicPartition("orders", 1))),
        ("m-2", "10.0.0.1", None, ()),
    ]
    assert [each.group_ids for each in cluster.asked("ConsumerGroupDescribe")] == [("modern", "missing")]
    with pytest.raises(CommandFailure, match="there is no group missing"):
        queries.describe_group(client, "missing")


def test_a_broker_that_is_not_there_is_not_waited_for() -> None:
    from penstock.cli.options import Connection

    with WireClient(Connection("127.0.0.1:1", {})) as client:
        with pytest.raises(CommandFailure, match=r"cannot reach a broker at 127\.0\.0\.1:1") as caught:
            queries.list_groups(client)
        assert "nothing listens there" in caught.value.why


def test_partitions_by_topic() -> None:
    assert routing.by_topic([("b", 1), ("a", 2), ("a", 0)]) == {"a": [0, 2], "b": [1]}
