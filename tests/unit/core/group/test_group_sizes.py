"""The members of a group take a bounded amount of memory, whichever protocol they use."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.group.classic.group import ClassicGroup
from penstock.core.group.classic.members import ClassicMember
from penstock.core.group.contract import GroupSettings
from penstock.core.group.sizes import MEMBER_BYTES_MAX
from penstock.model.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.group_clients import commit_request
from support.worlds.group_world import GroupWorld

SETTINGS = GroupSettings(metadata_bytes_max=4000)


def joins(kind: str, member_id: str, size: int) -> tuple[str, Any]:
    if kind == "consumer":
        return "consumer.heartbeat", ConsumerGroupHeartbeatRequest(
            "g",
            member_id,
            0,
            rack_id="r" * size,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
    return "share.heartbeat", ShareGroupHeartbeatRequest("g", member_id, 0, "r" * size, ["t"])


def error_of(response: Any) -> ErrorCode:
    return ErrorCode(getattr(response, "response", response).error_code)


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_all_members_together_have_a_bound_and_a_new_one_finds_no_room(kind: str) -> None:
    world = GroupWorld(SETTINGS)
    for member_id in ("a", "b", "c"):
        assert error_of(world.answer(*joins(kind, member_id, 1000))) is ErrorCode.NONE
    assert error_of(world.answer(*joins(kind, "d", 1000))) is ErrorCode.GROUP_MAX_SIZE_REACHED
    # A member's new metadata takes the place of its former one.
    assert error_of(world.answer(*joins(kind, "c", 1500))) is ErrorCode.NONE
    assert error_of(world.answer(*joins(kind, "c", 100))) is ErrorCode.NONE
    assert error_of(world.answer(*joins(kind, "d", 1000))) is ErrorCode.NONE


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_the_bound_holds_after_a_failover(kind: str) -> None:
    world = GroupWorld(SETTINGS)
    for member_id in ("a", "b", "c"):
        world.answer(*joins(kind, member_id, 1000))
    world.reload()
    assert error_of(world.answer(*joins(kind, "d", 1000))) is ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_one_member_is_bounded_by_what_the_log_takes(kind: str) -> None:
    world = GroupWorld()
    assert error_of(world.answer(*joins(kind, "a", MEMBER_BYTES_MAX))) is ErrorCode.INVALID_REQUEST
    assert world.log == []


def test_a_classic_group_counts_members_and_ids_that_are_yet_to_join() -> None:
    world = GroupWorld(SETTINGS)

    def join(size: int, member_id: str = "", client: str = "client") -> Any:
        protocols = [JoinGroupRequestProtocol("range", bytes(size))]
        return world.ask(
            "join_group", JoinGroupRequest("g", 30_000, 30_000, member_id, None, "x", protocols), 9, client
        )

    first = world.responses.pop(join(100, client="c" * 2000))
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert world.responses.pop(join(2500)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    join(1000, first.member_id)
    assert world.responses.pop(join(2500)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.responses.pop(join(100)).error_code == ErrorCode.MEMBER_ID_REQUIRED


class Unlisted(dict[str, Any]):
    """Members that are looked up one by one: going through all of them for each is quadratic."""

    def values(self) -> Any:
        raise AssertionError("all members are gone through")

    __iter__ = values


def test_what_a_group_takes_is_known_without_asking_each_member() -> None:
    """Ten thousand members rejoin within seconds after each rebalance."""
    classic = ClassicGroup("g")
    for number in range(3):
        protocols = [JoinGroupRequestProtocol("range", bytes(100))]
        classic.add(ClassicMember(f"m{number}", None, "client", "/host", 1, 1, protocols), "consumer")
        classic.expect(f"pending-{number}")
    size_bytes = classic.others_bytes("") - classic.others_bytes("m1")
    assert size_bytes == classic.members["m1"].size_bytes
    classic.members = Unlisted(classic.members)
    classic.pending_members = Unlisted(classic.pending_members)
    assert classic.others_bytes("m1") == 2 * size_bytes + 3 * len("pending-0")
    world = GroupWorld(SETTINGS)
    for member_id in ("a", "b"):
        world.answer(*joins("share", member_id, 1000))
    group: Any = world.shard.share.find("g")
    group._metadata_bytes = Unlisted(group._metadata_bytes)
    assert error_of(world.answer(*joins("share", "c", 1000))) is ErrorCode.NONE
    assert error_of(world.answer(*joins("share", "d", 1000))) is ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_the_groups_of_one_right_have_a_bound_together(kind: str) -> None:
    world = GroupWorld(GroupSettings(prefix_bytes_max=4000))
    world.widest_prefix = lambda: "g"
    for member_id in ("a", "b", "c", "d"):
        found = error_of(world.answer(*joins(kind, member_id, 1200)))
        assert found is (ErrorCode.GROUP_MAX_SIZE_REACHED if member_id == "d" else ErrorCode.NONE)
    # What takes no more room than before is accepted, and so is what another right gives.
    assert error_of(world.answer(*joins(kind, "a", 1300))) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert error_of(world.answer(*joins(kind, "a", 1199))) is ErrorCode.NONE
    world.widest_prefix = lambda: "other"
    assert error_of(world.answer(*joins(kind, "d", 1200))) is ErrorCode.NONE


def test_new_classic_groups_find_no_room_where_others_of_the_same_right_took_it() -> None:
    world = GroupWorld(GroupSettings(prefix_bytes_max=4000, initial_rebalance_delay_ms=0))
    world.widest_prefix = lambda: "g"

    def join(group: str, size: int, member_id: str = "") -> Any:
        protocols = [JoinGroupRequestProtocol("range", b"x" * size)]
        request = JoinGroupRequest(group, 10_000, 10_000, member_id, None, "consumer", protocols)
        token = world.ask("join_group", request, version=3)
        world.advance(0)
        return world.responses.pop(token)

    first = join("g1", 2000)
    assert first.error_code == ErrorCode.NONE
    assert join("g2", 2000).error_code == ErrorCode.NONE
    assert join("g3", 1).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "g3" not in {group.group_id for group in world.shard.list_groups()}
    # A member may join again, with no more than before.
    assert join("g1", 2001, first.member_id).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join("g1", 2000, first.member_id).error_code == ErrorCode.NONE
    world.advance(60_000)
    assert join("g3", 1).error_code == ErrorCode.NONE


def test_offsets_of_groups_of_one_right_have_a_bound_together() -> None:
    world = GroupWorld(GroupSettings(prefix_bytes_max=4000, offset_metadata_max_bytes=2000))
    world.widest_prefix = lambda: ""

    def commit(partition: int, size: int) -> int:
        response = world.answer("offset_commit", commit_request({("t", partition): 1}, metadata="x" * size))
        return int(response.topics[0].partitions[0].error_code)

    assert [commit(partition, 1500) for partition in range(3)] == [0, 0, 0]
    assert commit(3, 0) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert commit(0, 1501) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert commit(0, 1500) == 0
    assert commit(0, 10) == 0
    assert commit(3, 0) == 0
    world.reload()
    assert commit(4, 1500) == 0
    assert commit(5, 0) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
