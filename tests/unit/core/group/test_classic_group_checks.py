"""Which requests a classic group accepts, by its state and its members."""

from __future__ import annotations

import pytest

from penstock.core.group.classic.group import ClassicGroup, ClassicState
from penstock.model.errors import ErrorCode
from penstock.wire.messages.group_records import GroupMetadataValue, MemberMetadata

OK, UNKNOWN, GONE = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND


def group(*members: str, protocol_type: str = "consumer", generation: int = 4) -> ClassicGroup:
    rows = [MemberMetadata(member_id=name, group_instance_id=f"{name}-instance") for name in members]
    value = GroupMetadataValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol="range",
        leader=members[0] if members else None,
        members=rows,
    )
    return ClassicGroup.from_record("group", value)


def dead() -> ClassicGroup:
    gone = group()
    gone.transition(ClassicState.DEAD, 0)
    return gone


def commit(
    of: ClassicGroup,
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    *,
    transactional: bool = False,
) -> ErrorCode:
    return of.check_offset_commit(member, instance, generation, 9, transactional=transactional)


def test_a_group_that_is_gone_has_no_offsets_and_cannot_be_deleted() -> None:
    assert commit(dead()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert dead().check_offset_fetch(None, -1) is GONE
    assert dead().check_offset_delete() is GONE
    assert dead().check_delete() is GONE


def test_anything_may_be_done_with_the_offsets_of_an_empty_group() -> None:
    empty = group()
    assert [commit(empty), empty.check_offset_fetch(None, -1)] == [OK, OK]
    assert [empty.check_offset_delete(), empty.check_delete()] == [OK, OK]


def test_a_group_with_members_is_not_deleted_and_only_consumers_topics_are_known() -> None:
    assert group("a").check_delete() is ErrorCode.NON_EMPTY_GROUP
    assert group("a").check_offset_delete() is OK
    assert group("a", protocol_type="connect").check_offset_delete() is ErrorCode.NON_EMPTY_GROUP
    assert group(protocol_type="connect").check_offset_delete() is OK


@pytest.mark.parametrize(
    ("member", "generation", "instance", "error"),
    [
        ("a", 4, None, OK),
        ("a", 4, "a-instance", OK),
        ("a", 3, None, ErrorCode.ILLEGAL_GENERATION),
        ("a", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("b", 4, None, UNKNOWN),
        ("a", 4, "other", UNKNOWN),
        ("b", 4, "a-instance", ErrorCode.FENCED_INSTANCE_ID),
        ("", -1, None, UNKNOWN),
        ("", -1, "a-instance", ErrorCode.FENCED_INSTANCE_ID),
        ("", 4, None, UNKNOWN),
    ],
)
def test_members_commit_in_their_generation(
    member: str, generation: int, instance: str | None, error: ErrorCode
) -> None:
    assert commit(group("a"), member, generation, instance) is error


def test_a_transaction_may_commit_without_naming_a_member_and_during_a_rebalance() -> None:
    assert commit(group("a"), transactional=True) is OK
    assert commit(group("a"), "a", 3, transactional=True) is ErrorCode.ILLEGAL_GENERATION
    rebalancing = group("a")
    rebalancing.transition(ClassicState.PREPARING_REBALANCE, 0)
    assert commit(rebalancing, "a", 4) is OK
    rebalancing.transition(ClassicState.COMPLETING_REBALANCE, 0)
    assert commit(rebalancing, "a", 4) is ErrorCode.REBALANCE_IN_PROGRESS
    assert commit(rebalancing, "a", 4, transactional=True) is OK


def test_a_leader_is_a_member_that_has_joined_again() -> None:
    assert not group().elect_joined_leader()
    members = group("a", "b", "c")
    assert members.leader == "a"
    assert not members.elect_joined_leader(), "no member has joined"
    members.park_join(members.members["b"], 1)
    members.park_join(members.members["c"], 2)
    assert (members.elect_joined_leader(), members.leader) == (True, "b")
    members.unpark_join(members.members["b"])
    assert (members.elect_joined_leader(), members.leader) == (True, "c")
    members.park_join(members.members["b"], 3)
    assert (members.elect_joined_leader(), members.leader) == (True, "c"), "who leads keeps leading"
