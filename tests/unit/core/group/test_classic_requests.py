"""Classic groups, request by request: the answers that scenarios don't show."""

from __future__ import annotations

import pytest

from penstock.core.contract import Timer
from penstock.core.group.classic.group import ClassicState
from penstock.core.group.contract import GroupSettings
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.codec import encode
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_delete import OffsetDeleteRequest
from support.group_clients import (
    GROUP,
    commit_request,
    join_request,
    joined_members,
    live_group,
    stable_members,
    sync_request,
)
from support.worlds.group_world import GroupWorld


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld(GroupSettings(initial_rebalance_delay_ms=1000))


def heartbeat(world: GroupWorld, member_id: str, generation: int = 1, instance_id: str | None = None) -> int:
    request = HeartbeatRequest(GROUP, generation, member_id, instance_id)
    return int(world.answer("heartbeat", request).error_code)


def test_a_group_needs_a_name(world: GroupWorld) -> None:
    requests = {
        "join_group": join_request(group_id=""),
        "sync_group": sync_request("m", 1)._replace(group_id=""),
        "heartbeat": HeartbeatRequest("", 1, "m"),
        "leave_group": LeaveGroupRequest("", members=[MemberIdentity("m")]),
        "offset_delete": OffsetDeleteRequest(""),
    }
    for method, request in requests.items():
        assert world.answer(method, request).error_code == ErrorCode.INVALID_GROUP_ID
    assert not world.shard.list_groups()


@pytest.mark.parametrize(
    ("session_ms", "accepted"), [(5999, False), (6000, True), (1_800_000, True), (1_800_001, False)]
)
def test_session_timeouts_have_bounds(world: GroupWorld, session_ms: int, accepted: bool) -> None:
    answer = world.answer("join_group", join_request(session_timeout_ms=session_ms))
    expected = ErrorCode.MEMBER_ID_REQUIRED if accepted else ErrorCode.INVALID_SESSION_TIMEOUT
    assert answer.error_code == expected


@pytest.mark.parametrize("bad", [{"protocol_type": ""}, {"protocols": ()}])
def test_who_cannot_be_a_member_founds_no_group(world: GroupWorld, bad: dict[str, object]) -> None:
    answer = world.answer("join_group", join_request(**bad))  # type: ignore[arg-type]
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not world.log
    assert not world.shard.list_groups()


def test_no_member_is_known_where_there_is_no_group(world: GroupWorld) -> None:
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert world.answer("join_group", join_request("m")).error_code == unknown
    assert world.answer("sync_group", sync_request("m", 1)).error_code == unknown
    assert heartbeat(world, "m") == unknown
    old = world.answer("leave_group", LeaveGroupRequest(GROUP, "m"), 2)
    assert old.error_code == unknown
    assert not old.members
    new = world.answer("leave_group", LeaveGroupRequest(GROUP, members=[MemberIdentity("m", "i")]), 5)
    assert new.error_code == ErrorCode.NONE
    assert [tuple(row) for row in new.members] == [("m", "i", unknown)]
    with pytest.raises(ApiError) as refused:
        world.shard.describe_group(GROUP)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_old_versions_have_one_timeout_for_both(world: GroupWorld) -> None:
    (member_id,) = joined_members(world, join_request(rebalance_timeout_ms=-1))
    assert live_group(world).members[member_id].rebalance_timeout_ms == 10_000


def test_an_id_handed_out_is_no_static_members(world: GroupWorld) -> None:
    pending = world.answer("join_group", join_request()).member_id
    answer = world.answer("join_group", join_request(pending, instance_id="i"))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert pending in live_group(world).pending_members


def test_old_versions_leave_one_by_one(world: GroupWorld) -> None:
    first, second = stable_members(world, join_request(), join_request())
    left = world.answer("leave_group", LeaveGroupRequest(GROUP, second), 2)
    assert (left.error_code, list(left.members)) == (ErrorCode.NONE, [])
    assert list(live_group(world).members) == [first]


def test_a_batch_of_leavers_rebalances_once(world: GroupWorld) -> None:
    first, second, third = stable_members(world, join_request(), join_request(), join_request())
    identities = [MemberIdentity(second), MemberIdentity("nobody"), MemberIdentity(third, None, "going home")]
    left = world.answer("leave_group", LeaveGroupRequest(GROUP, members=identities), 5)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [(row.member_id, row.error_code) for row in left.members] == [(second, 0), ("nobody", unknown), (third, 0)]
    assert heartbeat(world, first) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_pending_member_may_leave(world: GroupWorld) -> None:
    pending = world.answer("join_group", join_request()).member_id
    left = world.answer("leave_group", LeaveGroupRequest(GROUP, members=[MemberIdentity(pending)]), 5)
    assert left.members[0].error_code == ErrorCode.NONE
    assert not world.timers


def test_who_leaves_while_waiting_is_answered(world: GroupWorld) -> None:
    first, second = joined_members(world, join_request(), join_request())
    waiting_sync = world.ask("sync_group", sync_request(second, 1))
    world.answer("leave_group", LeaveGroupRequest(GROUP, members=[MemberIdentity(second)]), 5)
    assert world.responses[waiting_sync].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    newcomer = world.ask("join_group", join_request(), 3)
    newcomer_id = next(member for member in live_group(world).members if member != first)
    world.answer("leave_group", LeaveGroupRequest(GROUP, members=[MemberIdentity(newcomer_id)]), 5)
    assert world.responses[newcomer].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_newer_request_takes_the_place_of_an_older_one(world: GroupWorld) -> None:
    first, second = joined_members(world, join_request(), join_request())
    older_sync = world.ask("sync_group", sync_request(second, 1))
    newer_sync = world.ask("sync_group", sync_request(second, 1))
    assert world.responses[older_sync].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    world.ask("sync_group", sync_request(first, 1, {second: b"x"}))
    assert world.responses[newer_sync].assignment == b"x"
    older_join = world.ask("join_group", join_request(first))
    newer_join = world.ask("join_group", join_request(first))
    assert world.responses[older_join].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert newer_join in world.tokens_open
    assert live_group(world).awaiting_join_count == 1


def test_a_restarted_static_member_is_still_expected_to_sync(world: GroupWorld) -> None:
    first, second = joined_members(world, join_request(), join_request(instance_id="two"))
    world.ask("sync_group", sync_request(first, 1, {second: b"x"}))
    assert live_group(world).state is ClassicState.STABLE
    answer = world.answer("join_group", join_request(instance_id="two"))
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
    assert world.answer("sync_group", sync_request(answer.member_id, 1, instance_id="two")).assignment == b"x"
    assert ("sync", GROUP) not in world.timers


def test_a_static_member_with_another_protocol_rebalances(world: GroupWorld) -> None:
    both = ("range", "sticky")
    first, _ = stable_members(world, join_request(protocols=both), join_request(protocols=both, instance_id="two"))
    waiting = world.ask("join_group", join_request(protocols=("sticky",), instance_id="two"))
    assert waiting in world.tokens_open
    assert heartbeat(world, first) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_rebalance_continues_when_the_member_it_waits_for_is_lost(world: GroupWorld) -> None:
    first, second = stable_members(world, join_request(), join_request())
    waiting = world.ask("join_group", join_request(first))
    world.advance(10_000)
    answer = world.responses[waiting]
    assert answer.generation_id == 2
    assert [row.member_id for row in answer.members] == [first]
    assert second not in live_group(world).members


def test_a_new_member_without_a_parked_join_is_dropped_in_the_end(world: GroupWorld) -> None:
    (first,) = stable_members(world, join_request(rebalance_timeout_ms=1_000_000, session_timeout_ms=1_000_000))
    newcomer = world.ask("join_group", join_request(), 3)
    world.advance(5 * 60 * 1000 - 1)
    assert newcomer in world.tokens_open
    world.advance(1)
    assert world.responses[newcomer].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(live_group(world).members) == [first]


def test_the_majority_chooses_among_what_all_support(world: GroupWorld) -> None:
    preferences = [("alpha", "omega"), ("omega", "alpha"), ("only-mine", "omega", "alpha")]
    joined_members(world, *(join_request(protocols=names) for names in preferences))
    assert live_group(world).protocol_name == "omega"


def test_a_sync_must_be_for_what_was_agreed(world: GroupWorld) -> None:
    (member_id,) = joined_members(world, join_request())
    request = sync_request(member_id, 1)
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        answer = world.answer("sync_group", request._replace(**wrong))  # type: ignore[arg-type]
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.answer("sync_group", request._replace(generation_id=0)).error_code == ErrorCode.ILLEGAL_GENERATION
    right = request._replace(protocol_type="consumer", protocol_name="range")
    assert world.answer("sync_group", right).error_code == ErrorCode.NONE


def test_a_session_is_as_long_as_requested(world: GroupWorld) -> None:
    (member_id,) = stable_members(world, join_request(session_timeout_ms=6000))
    world.advance(5999)
    assert heartbeat(world, member_id) == ErrorCode.NONE
    world.advance(5999)
    world.answer("offset_commit", commit_request({("t", 0): 1}, member_id, 1))
    world.advance(5999)
    assert heartbeat(world, member_id) == ErrorCode.NONE
    world.advance(6000)
    assert live_group(world).is_empty


def test_heartbeats_move_nothing_but_the_session(world: GroupWorld) -> None:
    (member_id,) = stable_members(world, join_request())
    world.advance(2000)
    seen: list[Timer] = []
    world.observer = lambda effects: seen.extend(effects.timers)
    assert heartbeat(world, member_id) == ErrorCode.NONE
    assert [timer.key for timer in seen] == [("session", GROUP, member_id)]


def test_a_static_member_that_never_comes_back_does_not_hold_the_group_for_ever(world: GroupWorld) -> None:
    stable_members(world, join_request(instance_id="one", session_timeout_ms=600_000))
    world.reload()
    world.advance(600_000)
    assert live_group(world).is_empty
    assert not world.timers


def test_a_group_that_became_too_large_rebalances_when_loaded(world: GroupWorld) -> None:
    first, second = stable_members(world, join_request(), join_request())
    world.settings = GroupSettings(max_size=1)
    world.reload()
    assert heartbeat(world, first) == ErrorCode.REBALANCE_IN_PROGRESS
    accepted = world.ask("join_group", join_request(first))
    refused = world.answer("join_group", join_request(second))
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.responses[accepted].error_code == ErrorCode.NONE


def test_descriptions_show_the_protocol_of_stable_groups_only(world: GroupWorld) -> None:
    first, second = stable_members(world, join_request(), join_request(instance_id="two"))
    described = world.shard.describe_group(GROUP)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    rows = [(row.member_id, row.group_instance_id, row.client_id, row.client_host) for row in described.members]
    assert rows == [(first, None, "client", "/127.0.0.1"), (second, "two", "client", "/127.0.0.1")]
    assert [row.member_assignment for row in described.members] == [b"0", b"1"]
    assert all(row.member_metadata for row in described.members)
    world.ask("join_group", join_request(first))
    described = world.shard.describe_group(GROUP)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert not any(row.member_metadata for row in described.members)
    (listed,) = world.shard.list_groups()
    assert listed == (GROUP, "consumer", "PreparingRebalance", "classic")


@pytest.mark.parametrize("version", range(10))
def test_answers_can_be_sent_in_every_version_of_join(world: GroupWorld, version: int) -> None:
    waiting = world.ask("join_group", join_request(instance_id="one" if version >= 5 else None), version)
    world.advance(2000)
    answers = [world.responses.get(waiting), world.answer("join_group", join_request(session_timeout_ms=1), version)]
    answers.append(world.answer("join_group", join_request("unknown"), version))
    if version >= 5:
        leader = world.responses[waiting].member_id
        world.answer("sync_group", sync_request(leader, 1, instance_id="one"))
        rejoined = world.answer("join_group", join_request(instance_id="one"), version)
        assert rejoined.skip_assignment == (version >= 9)
        answers.append(rejoined)
    assert [bool(answer.error_code) for answer in answers[:3]] == [version == 4, True, True]
    for answer in answers:
        encode(answer, version)
