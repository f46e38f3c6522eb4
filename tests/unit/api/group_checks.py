"""What each API of the group coordinator must answer, whatever the version."""

from __future__ import annotations

from typing import Any, NamedTuple

from api_world import Ask, World, fresh_name

from penstock.model.errors import ErrorCode
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.describe_lag import DescribeLagRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

ID_REQUIRED_SINCE = 4
GROUP, TRANSACTION = 0, 1
OLD_JOIN, OLD_SYNC, OLD_COMMIT = 2, 2, 6


class Member(NamedTuple):
    """A member of a group, and the group's generation."""

    group: str
    member_id: str
    generation: int


def join(ask: Ask, version: int = OLD_JOIN, group: str | None = None) -> Member:
    """Join a group alone, as a client of that version does."""
    name = group or fresh_name()
    request = JoinGroupRequest(name, 60_000, 60_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"meta")])
    response = ask(request, version)
    if version >= ID_REQUIRED_SINCE:
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert response.member_id
        response = ask(request._replace(member_id=response.member_id), version)
    assert response.error_code == 0
    assert (response.leader, response.protocol_name) == (response.member_id, "range")
    assert [(row.member_id, bytes(row.metadata)) for row in response.members] == [(response.member_id, b"meta")]
    return Member(name, response.member_id, response.generation_id)


def settle(ask: Ask, version: int = OLD_SYNC) -> Member:
    """A group whose only member has its assignment."""
    member = join(ask)
    given = [SyncGroupRequestAssignment(member.member_id, b"plan")]
    request = SyncGroupRequest(
        member.group, member.generation, member.member_id, None, "consumer", "range", assignments=given
    )
    response = ask(request, version)
    assert (response.error_code, bytes(response.assignment)) == (0, b"plan")
    if version >= 5:
        assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    return member


def commit(
    ask: Ask, world: World, member: Member | None = None, version: int = OLD_COMMIT, offset: int = 2
) -> tuple[str, Any]:
    """Commit an offset with a note; the group and the response."""
    who = member or Member(fresh_name(), "", -1)
    rows = [
        OffsetCommitRequestPartition(0, offset, 0 if version >= 6 else -1, "note"),
        OffsetCommitRequestPartition(9, 2, -1, None),
    ]
    topics = [OffsetCommitRequestTopic(world.topic, world.topic_id, rows)]
    topics.append(OffsetCommitRequestTopic(world.missing, world.missing_id, rows[:1]))
    request = OffsetCommitRequest(who.group, who.generation, who.member_id, topics=topics)
    return who.group, ask(request, version)


def check_find_coordinator(ask: Ask, world: World, version: int) -> None:
    if version < 4:
        found = ask(FindCoordinatorRequest(key="group"), version)
        assert (found.error_code, f"{found.host}:{found.port}") == (0, world.cluster.bootstrap_servers)
        return
    response = ask(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=["one", "two"]), version)
    assert [row.key for row in response.coordinators] == ["one", "two"]
    assert {f"{row.host}:{row.port}" for row in response.coordinators} == {world.cluster.bootstrap_servers}
    (other,) = ask(FindCoordinatorRequest(key_type=9, coordinator_keys=["x"]), version).coordinators
    assert other.error_code != 0


def check_join_group(ask: Ask, _: World, version: int) -> None:
    member = join(ask, version)
    stranger = JoinGroupRequest(
        member.group, 60_000, 60_000, "stranger", None, "consumer", [JoinGroupRequestProtocol("range", b"")]
    )
    assert ask(stranger, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    odd = stranger._replace(member_id="", protocol_type="connect")
    assert ask(odd, version).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ask(stranger._replace(session_timeout_ms=1), version).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert ask(stranger._replace(group_id=""), version).error_code == ErrorCode.INVALID_GROUP_ID


def check_sync_group(ask: Ask, _: World, version: int) -> None:
    member = settle(ask, version)
    request = SyncGroupRequest(member.group, member.generation, "stranger", None, "consumer", "range")
    assert ask(request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    stale = request._replace(member_id=member.member_id, generation_id=member.generation + 5)
    assert ask(stale, version).error_code == ErrorCode.ILLEGAL_GENERATION


def check_heartbeat(ask: Ask, _: World, version: int) -> None:
    member = settle(ask)
    request = HeartbeatRequest(member.group, member.generation, member.member_id)
    assert ask(request, version).error_code == 0
    assert ask(request._replace(member_id="stranger"), version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ask(request._replace(generation_id=99), version).error_code == ErrorCode.ILLEGAL_GENERATION


def check_leave_group(ask: Ask, _: World, version: int) -> None:
    member = settle(ask)
    if version < 3:
        assert ask(LeaveGroupRequest(member.group, member.member_id), version).error_code == 0
        again = ask(LeaveGroupRequest(member.group, member.member_id), version)
        assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        return
    leaving = [MemberIdentity(member.member_id), MemberIdentity("stranger")]
    response = ask(LeaveGroupRequest(member.group, members=leaving), version)
    assert [row.error_code for row in response.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]


def check_offset_commit(ask: Ask, world: World, version: int) -> None:
    for member in (None, settle(ask)):
        _, response = commit(ask, world, member, version)
        good, nowhere = response.topics[0].partitions
        assert (good.error_code, nowhere.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert response.topics[1].partitions[0].error_code == unknown
        if version >= 10:
            assert [topic.topic_id for topic in response.topics] == [world.topic_id, world.missing_id]
    stale = settle(ask)._replace(generation=99)
    _, response = commit(ask, world, stale, version)
    assert response.topics[0].partitions[0].error_code == ErrorCode.ILLEGAL_GENERATION


def check_offset_fetch(ask: Ask, world: World, version: int) -> None:
    group, _ = commit(ask, world)
    if version < 8:
        wanted = [OffsetFetchRequestTopic(world.topic, [0, 1])]
        response = ask(OffsetFetchRequest(group, wanted), version)
        found = response
    else:
        topics = [OffsetFetchRequestTopics(world.topic, world.topic_id, [0, 1])]
        groups = [OffsetFetchRequestGroup(group, topics=topics), OffsetFetchRequestGroup(fresh_name(), topics=None)]
        found, empty = ask(OffsetFetchRequest(groups=groups), version).groups
        assert (empty.error_code, empty.topics) == (0, ())
    assert found.error_code == 0
    committed, open_ = found.topics[0].partitions
    assert (committed.error_code, committed.committed_offset, committed.metadata) == (0, 2, "note")
    assert (open_.error_code, open_.committed_offset) == (0, -1)
    if version >= 10:
        wanted_ids = [OffsetFetchRequestTopics("", one, [0]) for one in (world.missing_id, world.topic_id)]
        groups = [OffsetFetchRequestGroup(group, topics=wanted_ids), OffsetFetchRequestGroup(group, topics=None)]
        some, every = ask(OffsetFetchRequest(groups=groups), version).groups
        rows = {topic.topic_id: topic.partitions[0] for topic in some.topics}
        assert rows[world.missing_id].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert (rows[world.topic_id].error_code, rows[world.topic_id].committed_offset) == (0, 2)
        assert [topic.topic_id for topic in every.topics] == [world.topic_id]
    if version in range(2, 8):
        every = ask(OffsetFetchRequest(group, None), version)
        assert [(topic.name, len(topic.partitions)) for topic in every.topics] == [(world.topic, 1)]


def check_describe_groups(ask: Ask, _: World, version: int) -> None:
    member = settle(ask)
    response = ask(DescribeGroupsRequest([member.group, "nobody"], version >= 3), version)
    found, absent = response.groups
    assert (found.error_code, found.group_state, found.protocol_type) == (0, "Stable", "consumer")
    (described,) = found.members
    assert (described.member_id, bytes(described.member_assignment)) == (member.member_id, b"plan")
    assert (absent.error_code, absent.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0, "Dead")


def check_list_groups(ask: Ask, _: World, version: int) -> None:
    member = settle(ask)
    groups = {row.group_id: row for row in ask(ListGroupsRequest(), version).groups}
    assert groups[member.group].protocol_type == "consumer"
    if version >= 4:
        assert groups[member.group].group_state == "Stable"
        empty = ask(ListGroupsRequest(["Empty"]), version)
        assert member.group not in {row.group_id for row in empty.groups}
    if version >= 5:
        assert groups[member.group].group_type == "classic"
        assert ask(ListGroupsRequest((), ["consumer"]), version).error_code == 0


def check_delete_groups(ask: Ask, world: World, version: int) -> None:
    busy, (idle, _) = settle(ask).group, commit(ask, world)
    response = ask(DeleteGroupsRequest([busy, idle, "nobody"]), version)
    codes = {row.group_id: row.error_code for row in response.results}
    assert codes == {busy: ErrorCode.NON_EMPTY_GROUP, idle: 0, "nobody": ErrorCode.GROUP_ID_NOT_FOUND}


def check_offset_delete(ask: Ask, world: World, version: int) -> None:
    group, _ = commit(ask, world)
    topics = [OffsetDeleteRequestTopic(world.topic, [OffsetDeleteRequestPartition(0)])]
    response = ask(OffsetDeleteRequest(group, topics), version)
    assert (response.error_code, response.topics[0].partitions[0].error_code) == (0, 0)
    assert ask(OffsetDeleteRequest("nobody", topics), version).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def _consumer_member(ask: Ask, world: World, version: int) -> tuple[str, Any]:
    group = fresh_name()
    request = ConsumerGroupHeartbeatRequest(
        group, "A" * 22 if version else "", 0, None, None, 30_000, [world.topic], topic_partitions=[]
    )
    return group, ask(request, version)


def check_consumer_group_heartbeat(ask: Ask, world: World, version: int) -> None:
    group, response = _consumer_member(ask, world, version)
    assert (response.error_code, response.error_message) == (0, None)
    assert response.member_id
    assert response.member_epoch >= 1
    assert response.heartbeat_interval_ms > 0
    beat = ask(ConsumerGroupHeartbeatRequest(group, "stranger", 5), version)
    assert beat.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    gone = ask(ConsumerGroupHeartbeatRequest(group, response.member_id, -1), version)
    assert (gone.error_code, gone.member_epoch) == (0, -1)


def check_consumer_group_describe(ask: Ask, world: World, version: int) -> None:
    group, joined = _consumer_member(ask, world, 1)
    response = ask(ConsumerGroupDescribeRequest([group, "nobody"], True), version)
    found, absent = response.groups
    assert (found.error_code, found.group_id) == (0, group)
    assert [(row.member_id, list(row.subscribed_topic_names)) for row in found.members] == [
        (joined.member_id, [world.topic])
    ]
    assert absent.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def check_describe_lag(ask: Ask, world: World, version: int) -> None:
    group, _ = commit(ask, world)
    (found,) = ask(DescribeLagRequest([group]), version).groups
    assert (found.error_code, found.lag) == (0, 1)
    assert [(row.topic, row.partition, row.committed_offset, row.end_offset) for row in found.partitions] == [
        (world.topic, 0, 2, 3)
    ]
    for offset in (3, 9):
        group, _ = commit(ask, world, offset=offset)
        (caught_up,) = ask(DescribeLagRequest([group]), version).groups
        assert [(row.committed_offset, row.lag, row.lag_ms, row.status) for row in caught_up.partitions] == [
            (offset, 0, 0, "OK")
        ]


CHECKS = {
    "find_coordinator": check_find_coordinator,
    "join_group": check_join_group,
    "sync_group": check_sync_group,
    "heartbeat": check_heartbeat,
    "leave_group": check_leave_group,
    "offset_commit": check_offset_commit,
    "offset_fetch": check_offset_fetch,
    "describe_groups": check_describe_groups,
    "list_groups": check_list_groups,
    "delete_groups": check_delete_groups,
    "offset_delete": check_offset_delete,
    "consumer_group_heartbeat": check_consumer_group_heartbeat,
    "consumer_group_describe": check_consumer_group_describe,
    "describe_lag": check_describe_lag,
}
