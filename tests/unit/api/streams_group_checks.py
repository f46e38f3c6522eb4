"""What each API of streams groups must answer."""

from __future__ import annotations

import time
from typing import Any

from api_world import Ask, World, fresh_name

from penstock.core.group.streams.status import StatusCode
from penstock.model.errors import ErrorCode
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from penstock.wire.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

MEMBER = "A" * 22
GROUP_RESOURCE = 32
WAIT_S = 30.0


def topology_of(group: str, source: str) -> Topology:
    """Lines of the source topic, repartitioned and counted."""
    changelog = TopicInfo(f"{group}-changelog", topic_configs=[KeyValue("cleanup.policy", "compact")])
    return Topology(
        0,
        [
            Subtopology("0", [source], repartition_sink_topics=[f"{group}-repartition"]),
            Subtopology(
                "1",
                state_changelog_topics=[changelog],
                repartition_source_topics=[TopicInfo(f"{group}-repartition")],
            ),
        ],
    )


def join(ask: Ask, group: str, topology: Topology) -> Any:
    """A member's first heartbeat."""
    return ask(
        StreamsGroupHeartbeatRequest(
            group,
            MEMBER,
            rebalance_timeout_ms=60_000,
            topology=topology,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="process",
            client_tags=[KeyValue("zone", "a")],
        ),
        0,
    )


def beat(ask: Ask, group: str, epoch: int, owned: list[TaskIds] | None = None, **fields: Any) -> Any:
    """A later one."""
    roles = {} if owned is None else {"active_tasks": owned, "standby_tasks": [], "warmup_tasks": []}
    return ask(StreamsGroupHeartbeatRequest(group, MEMBER, epoch, **roles, **fields), 0)


def running(ask: Ask, world: World) -> tuple[str, int]:
    """A group whose only member has all tasks, once the internal topics are created, and the member's epoch."""
    group = fresh_name()
    at_once = [
        AlterableConfig("streams.initial.rebalance.delay.ms", 0, "0"),
        AlterableConfig("streams.assignment.interval.ms", 0, "0"),
    ]
    altered = ask(IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_RESOURCE, group, at_once)]), 1)
    assert altered.responses[0].error_code == 0
    response = join(ask, group, topology_of(group, world.topic))
    assert (response.error_code, response.heartbeat_interval_ms) == (0, 5_000)
    assert [row.status_code for row in response.status] == [StatusCode.MISSING_INTERNAL_TOPICS]
    deadline = time.monotonic() + WAIT_S
    while response.status and time.monotonic() < deadline:
        time.sleep(0.01)
        response = beat(ask, group, response.member_epoch, [])
        assert response.error_code == 0
    assert [(row.subtopology_id, list(row.partitions)) for row in response.active_tasks] == [
        ("0", [0, 1]),
        ("1", [0, 1]),
    ]
    return group, response.member_epoch


def check_streams_group_heartbeat(ask: Ask, world: World, _: int) -> None:
    group, epoch = running(ask, world)
    tasks = [TaskIds("0", [0, 1]), TaskIds("1", [0, 1])]
    again = beat(ask, group, epoch, tasks)
    assert (again.error_code, again.active_tasks, list(again.status)) == (0, None, [])
    names = [MetadataRequestTopic(name=f"{group}-{kind}") for kind in ("changelog", "repartition")]
    created = ask(MetadataRequest(names), 12).topics
    assert [(row.error_code, len(row.partitions)) for row in created] == [(0, 2), (0, 2)]
    assert beat(ask, group, 99).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(ask, group, epoch, instance_id="i").error_code == ErrorCode.INVALID_REQUEST
    assert beat(ask, fresh_name(), 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    for name in ("__consumer_offsets", "no topic"):
        wrong = join(ask, group, Topology(0, [Subtopology("0", [name])]))
        assert wrong.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
        assert name in wrong.error_message
    lost = join(ask, fresh_name(), topology_of("lost", world.missing))
    assert [row.status_code for row in lost.status] == [StatusCode.ASSIGNMENT_DELAYED, StatusCode.MISSING_SOURCE_TOPICS]
    gone = beat(ask, group, -1)
    assert (gone.error_code, gone.member_epoch) == (0, -1)


def check_streams_group_describe(ask: Ask, world: World, version: int) -> None:
    group, epoch = running(ask, world)
    found, absent = ask(StreamsGroupDescribeRequest([group, "nobody"], True), version).groups
    assert (found.error_code, found.group_state, found.group_epoch, found.assignment_epoch) == (
        0,
        "Stable",
        epoch,
        epoch,
    )
    assert [row.subtopology_id for row in found.topology.subtopologies] == ["0", "1"]
    (changelog,) = found.topology.subtopologies[1].state_changelog_topics
    assert (changelog.name, changelog.partitions) == (f"{group}-changelog", 2)
    assert [tuple(row) for row in changelog.topic_configs] == [("cleanup.policy", "compact")]
    (member,) = found.members
    assert (member.member_id, member.member_epoch, member.process_id) == (MEMBER, epoch, "process")
    assert [tuple(tag) for tag in member.client_tags] == [("zone", "a")]
    assert member.assignment == member.target_assignment
    assert [row.subtopology_id for row in member.assignment.active_tasks] == ["0", "1"]
    assert absent.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    listed = ask(ListGroupsRequest(types_filter=["Streams"]), 5).groups
    assert (group, "streams", "streams", "Stable") in [
        (row.group_id, row.protocol_type, row.group_type, row.group_state) for row in listed
    ]
    (other,) = ask(DescribeGroupsRequest([group]), 6).groups
    assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (busy,) = ask(DeleteGroupsRequest([group]), 2).results
    assert busy.error_code == ErrorCode.NON_EMPTY_GROUP
    beat(ask, group, -1)
    (deleted,) = ask(DeleteGroupsRequest([group]), 2).results
    assert deleted.error_code == 0


CHECKS = {
    "streams_group_heartbeat": check_streams_group_heartbeat,
    "streams_group_describe": check_streams_group_describe,
}
