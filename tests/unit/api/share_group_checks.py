"""What each API of share groups' members and offsets must answer, whatever the version."""

from __future__ import annotations

import time
from typing import Any

from api_world import Ask, World, fresh_name

from penstock.model.errors import ErrorCode
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

MEMBER = "A" * 22
WAIT_S = 30.0


def beat(ask: Ask, group: str, epoch: int = 0, topics: list[str] | None = None, member: str = MEMBER) -> Any:
    """One heartbeat, in the only version."""
    return ask(ShareGroupHeartbeatRequest(group, member, epoch, None, topics), 1)


def share(ask: Ask, world: World) -> tuple[str, int]:
    """A share group whose only member has both partitions of the topic, and the member's epoch."""
    group = fresh_name()
    epoch = beat(ask, group, 0, [world.topic]).member_epoch
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        response = beat(ask, group, epoch)
        assert response.error_code == 0
        epoch = response.member_epoch
        if response.assignment is not None and response.assignment.topic_partitions:
            (row,) = response.assignment.topic_partitions
            assert (row.topic_id, list(row.partitions)) == (world.topic_id, [0, 1])
            return group, epoch
        time.sleep(0.01)
    raise AssertionError("the member got no partitions")


def altered(ask: Ask, world: World, *offsets: int) -> str:
    """A group without members that is to start at these offsets."""
    group = fresh_name()
    rows = [AlterShareGroupOffsetsRequestPartition(*pair) for pair in enumerate(offsets)]
    topics = [AlterShareGroupOffsetsRequestTopic(name, rows) for name in (world.topic, world.missing)]
    response = ask(AlterShareGroupOffsetsRequest(group, topics), 0)
    assert response.error_code == 0
    found, missing = response.responses
    assert (found.topic_name, found.topic_id) == (world.topic, world.topic_id)
    assert [row.error_code for row in found.partitions] == [0] * len(offsets)
    assert {row.error_code for row in missing.partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    return group


def described(ask: Ask, group: str, version: int, topics: list[Any] | None = None) -> Any:
    """The topics of one group's offsets."""
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, topics)])
    (found,) = ask(request, version).groups
    assert (found.group_id, found.error_code) == (group, 0)
    return found.topics


def check_share_group_heartbeat(ask: Ask, world: World, _: int) -> None:
    group, epoch = share(ask, world)
    assert beat(ask, group, epoch).assignment is None
    assert beat(ask, group, 99).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(ask, group, 5, member="stranger").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(ask, group, 0, [world.topic], member="x" * 37).error_code == ErrorCode.INVALID_REQUEST
    gone = beat(ask, group, -1)
    assert (gone.error_code, gone.member_epoch) == (0, -1)


def check_share_group_describe(ask: Ask, world: World, version: int) -> None:
    group, epoch = share(ask, world)
    found, absent = ask(ShareGroupDescribeRequest([group, "nobody"], True), version).groups
    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
    (member,) = found.members
    assert (member.member_id, member.member_epoch) == (MEMBER, epoch)
    assert [(row.topic_name, list(row.partitions)) for row in member.assignment.topic_partitions] == [
        (world.topic, [0, 1])
    ]
    assert absent.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    listed = ask(ListGroupsRequest(types_filter=["Share"]), 5).groups
    assert (group, "share", "Stable") in [(row.group_id, row.group_type, row.group_state) for row in listed]
    (busy,) = ask(DeleteGroupsRequest([group]), 2).results
    assert busy.error_code == ErrorCode.NON_EMPTY_GROUP
    beat(ask, group, -1)
    (deleted,) = ask(DeleteGroupsRequest([group]), 2).results
    assert deleted.error_code == 0
    assert not described(ask, group, 1)


def check_describe_share_group_offsets(ask: Ask, world: World, version: int) -> None:
    group = altered(ask, world, 1, 0)
    (topic,) = described(ask, group, version)
    assert (topic.topic_name, topic.topic_id) == (world.topic, world.topic_id)
    assert [(row.start_offset, row.error_code) for row in topic.partitions] == [(1, 0), (0, 0)]
    assert [row.lag for row in topic.partitions] == ([2, 0] if version else [-1, -1])
    wanted = [DescribeShareGroupOffsetsRequestTopic(name, [1]) for name in (world.topic, world.missing)]
    rows = described(ask, group, version, wanted)
    assert [(row.topic_name, row.partitions[0].start_offset) for row in rows] == [(world.topic, 0), (world.missing, -1)]


def check_alter_share_group_offsets(ask: Ask, world: World, version: int) -> None:
    group = altered(ask, world, 2)
    (topic,) = described(ask, group, 1)
    assert [(row.partition_index, row.start_offset, row.lag) for row in topic.partitions] == [(0, 2, 1)]
    busy, _ = share(ask, world)
    refused = ask(AlterShareGroupOffsetsRequest(busy, []), version)
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    assert ask(AlterShareGroupOffsetsRequest("", []), version).error_code == ErrorCode.INVALID_GROUP_ID


def check_delete_share_group_offsets(ask: Ask, world: World, version: int) -> None:
    group = altered(ask, world, 2, 0)
    topics = [DeleteShareGroupOffsetsRequestTopic(name) for name in (world.topic, world.missing)]
    response = ask(DeleteShareGroupOffsetsRequest(group, topics), version)
    rows = [(row.topic_name, row.error_code) for row in response.responses]
    assert (response.error_code, rows) == (
        0,
        [(world.topic, 0), (world.missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
    )
    assert not described(ask, group, 1)
    absent = ask(DeleteShareGroupOffsetsRequest("nobody", topics), version)
    assert absent.error_code == ErrorCode.GROUP_ID_NOT_FOUND


CHECKS = {
    "share_group_heartbeat": check_share_group_heartbeat,
    "share_group_describe": check_share_group_describe,
    "describe_share_group_offsets": check_describe_share_group_offsets,
    "alter_share_group_offsets": check_alter_share_group_offsets,
    "delete_share_group_offsets": check_delete_share_group_offsets,
}
