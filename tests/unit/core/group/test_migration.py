"""Groups on their way between the protocols: what they keep, who is told, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.group.classic.group import ClassicGroup, ClassicState
from penstock.core.group.consumer.members import MemberState
from penstock.core.group.consumer.protocol import read_assignment
from penstock.core.group.contract import GroupSettings
from penstock.model.errors import ErrorCode
from penstock.wire.codec import encode
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support.worlds.consumer_world import GROUP, ConsumerWorld, assignment, subscription


def make_world(**settings: Any) -> ConsumerWorld:
    return ConsumerWorld(GroupSettings(initial_rebalance_delay_ms=0, **settings), t=4)


def new_join(world: ConsumerWorld, member_id: str = "n", **changes: Any) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        GROUP, member_id, 0, rebalance_timeout_ms=1_000, subscribed_topic_names=["t"], topic_partitions=()
    )
    response = world.answer("consumer.heartbeat", request._replace(**changes), 1)
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    return response


def new_beat(world: ConsumerWorld, member_id: str, epoch: int, owned: list[int] | None = None) -> Any:
    rows = None if owned is None else [TopicPartitions(world.topics.ids["t"], owned)]
    request = ConsumerGroupHeartbeatRequest(GROUP, member_id, epoch, topic_partitions=rows)
    return world.answer("consumer.heartbeat", request, 1)


def old_join(
    world: ConsumerWorld,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: bytes | None = None,
    protocol: str = "range",
    protocol_type: str = "consumer",
    version: int = 3,
) -> int:
    """Version 3 does without a round for the member id."""
    protocols = [JoinGroupRequestProtocol(protocol, subscription(["t"]) if metadata is None else metadata)]
    request = JoinGroupRequest(GROUP, 10_000, 20_000, member_id, instance_id, protocol_type, protocols)
    return world.ask("join_group", request, version)


def founded(world: ConsumerWorld, part: bytes | None = None, **join: Any) -> str:
    """A classic group with one member that owns everything; returns its id."""
    token = old_join(world, **join)
    world.advance(0)
    joined = world.responses.pop(token)
    everything = assignment({"t": [0, 1, 2, 3]}) if part is None else part
    assignments = [SyncGroupRequestAssignment(joined.member_id, everything)]
    world.answer("sync_group", SyncGroupRequest(GROUP, 1, joined.member_id, assignments=assignments), 5)
    assert isinstance(joined.member_id, str)
    return joined.member_id


def test_members_keep_what_they_own_and_who_they_are() -> None:
    world = make_world()
    old = founded(world, instance_id="i", metadata=subscription(["t"], version=3))
    assert new_join(world).error_code == ErrorCode.NONE
    member = world.group().members[old]
    assert member.assigned == {world.topics.ids["t"]: frozenset(range(4))}
    assert (member.instance_id, member.member_epoch, member.state) == ("i", 1, MemberState.STABLE)
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert member.rebalance_timeout_ms == 20_000
    assert member.classic is not None
    assert member.classic.session_timeout_ms == 10_000
    assert [protocol.name for protocol in member.classic.supported_protocols] == ["range"]


def test_classic_timers_end_and_sessions_continue() -> None:
    world = make_world()
    old = founded(world)
    new_join(world)
    assert {key[0] for key in world.timers} == {"consumer-session"}
    world.advance(10_000)
    assert old not in world.group().members


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_upgrades_need_a_policy_that_allows_them(policy: str) -> None:
    world = make_world(consumer_migration_policy=policy)
    founded(world)
    response = new_join(world)
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "policy" in (response.error_message or "")
    assert world.shard.list_groups()[0].group_type == "classic"


def test_groups_that_are_not_of_consumers_are_not_upgraded() -> None:
    world = make_world()
    founded(world, protocol_type="connect")
    assert "consumers" in (new_join(world).error_message or "")


def test_groups_that_are_too_large_are_not_upgraded() -> None:
    world = make_world(consumer_max_size=1)
    founded(world)
    old_join(world)
    assert "more members" in (new_join(world).error_message or "")


def large_subscription(size: int = 400_000) -> bytes:
    return b"\0\1" + encode(ConsumerProtocolSubscription(topics=["t"], user_data=bytes(size)), 1)


def test_a_group_that_might_be_written_by_halves_is_not_upgraded() -> None:
    world = make_world()
    founded(world, metadata=large_subscription())
    for _ in range(2):
        old_join(world, metadata=large_subscription())
    assert "one batch" in (new_join(world).error_message or "")
    assert world.shard.list_groups()[0].group_type == "classic"


def test_an_assignment_with_data_of_a_custom_assignor_cannot_be_moved() -> None:
    world = make_world()
    row = ConsumerProtocolAssignment([TopicPartition("t", [0])], b"mine")
    founded(world, b"\0\1" + encode(row, 1))
    assert "assignor" in (new_join(world).error_message or "")


@pytest.mark.parametrize(("part", "metadata"), [(b"\0\1\x7f", None), (b"\xff\xff", None), (None, b"\0\1\0\0\0\5")])
def test_what_cannot_be_read_cannot_be_moved(part: bytes | None, metadata: bytes | None) -> None:
    world = make_world()
    founded(world, part, metadata=metadata)
    size = len(world.log)
    response = new_join(world)
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "cannot be read" in (response.error_message or "")
    assert len(world.log) == size


def test_a_refused_join_leaves_a_rebalance_of_the_classic_group_alone() -> None:
    world = make_world()
    token = old_join(world)
    assert new_join(world, subscribed_topic_regex="(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert token in world.tokens_open
    world.advance(0)
    assert world.responses[token].generation_id == 1


def test_members_that_wait_for_a_classic_rebalance_must_join_again() -> None:
    world = make_world()
    old = founded(world)
    parked_join = old_join(world, old, metadata=subscription(["t", "u"]))
    world.advance(0)
    joined = world.responses.pop(parked_join)
    other = old_join(world)
    world.advance(0)
    parked_sync = world.ask("sync_group", SyncGroupRequest(GROUP, joined.generation_id, joined.member_id), 5)
    assert {other, parked_sync} & world.tokens_open
    new_join(world)
    assert not world.tokens_open
    assert world.responses[other].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_has_its_own_session_after_a_failover_too() -> None:
    world = make_world()
    owned = {"t": [0, 1, 2, 3]}
    old = founded(world, assignment({"t": [0]}), metadata=subscription(["t"], owned), protocol="cooperative-sticky")
    new_join(world)
    assert world.group().members[old].state is MemberState.UNREVOKED_PARTITIONS
    world.reload()
    deadlines = {key[0]: deadline_ms for key, deadline_ms in world.timers.items() if key[2] == old}
    assert deadlines == {"consumer-session": world.now_ms + 10_000}
    # The time to revoke begins when it learns of it.
    heartbeat = HeartbeatRequest(GROUP, 1, old)
    assert world.answer("heartbeat", heartbeat, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.timers["consumer-join", GROUP, old] == world.now_ms + 20_000


def test_partitions_a_cooperative_member_has_not_revoked_are_not_reassigned() -> None:
    world = make_world()
    owned = {"t": [0, 1, 2, 3]}
    old = founded(world, assignment({"t": [0]}), metadata=subscription(["t"], owned), protocol="cooperative-sticky")
    response = new_join(world)
    assert response.assignment is not None
    assert not response.assignment.topic_partitions
    member = world.group().members[old]
    assert member.state is MemberState.UNREVOKED_PARTITIONS
    assert member.pending_revocation == {world.topics.ids["t"]: frozenset({1, 2, 3})}
    # It reports the revocation when it joins again.
    old_join(world, old, metadata=subscription(["t"], {"t": [0]}), protocol="cooperative-sticky")
    assert world.shown(new_beat(world, "n", 2).assignment.topic_partitions) == "t/2,3"


def test_an_expired_classic_member_that_still_claims_partitions_is_not_taken_for_a_new_one() -> None:
    world = make_world()
    new_join(world)
    token = old_join(world, "another", metadata=subscription(["t"], {"t": [1]}))
    assert world.responses.pop(token).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    token = old_join(world, "another", metadata=subscription(["t"]))
    assert world.responses.pop(token).error_code == ErrorCode.NONE


def test_classic_members_get_an_id_first_and_never_lead() -> None:
    world = make_world()
    new_join(world)
    first = world.responses.pop(old_join(world, version=9))
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert isinstance(first, JoinGroupResponse)
    joined = world.responses.pop(old_join(world, first.member_id, version=9))
    assert (joined.leader, joined.members, joined.protocol_name) == ("", (), "range")
    assert (joined.protocol_type, joined.generation_id) == ("consumer", 2)


def test_classic_members_must_share_a_protocol_and_be_consumers() -> None:
    world = make_world()
    new_join(world)
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.responses.pop(old_join(world, protocol_type="connect")).error_code == inconsistent
    assert world.responses.pop(old_join(world, metadata=b"\0\1\0")).error_code == inconsistent
    assert world.responses.pop(old_join(world)).error_code == ErrorCode.NONE
    assert world.responses.pop(old_join(world, protocol="roundrobin")).error_code == inconsistent


def test_sync_and_heartbeat_are_for_classic_members_in_their_generation() -> None:
    world = make_world()
    new_join(world)
    old = world.responses.pop(old_join(world)).member_id

    def sync(member_id: str, generation: int, **more: Any) -> Any:
        return world.answer("sync_group", SyncGroupRequest(GROUP, generation, member_id, **more), 5)

    def beat(member_id: str, generation: int, instance_id: str | None = None) -> Any:
        return world.answer("heartbeat", HeartbeatRequest(GROUP, generation, member_id, instance_id), 4).error_code

    assert sync("n", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync("who", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(old, 1).error_code == ErrorCode.ILLEGAL_GENERATION
    assert sync(old, 2, protocol_name="other").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(old, 2, protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    synced = sync(old, 2, protocol_name="range", protocol_type="consumer")
    assert (synced.error_code, synced.protocol_name, synced.protocol_type) == (0, "range", "consumer")
    assert not read_assignment(synced.assignment).assigned_partitions
    assert beat("n", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(old, 1) == ErrorCode.ILLEGAL_GENERATION
    assert beat(old, 2, "instance") == ErrorCode.UNKNOWN_MEMBER_ID
    # The other member still holds what this one is to get, so there is nothing to join for yet.
    assert beat(old, 2) == ErrorCode.NONE
    new_beat(world, "n", 1)
    new_beat(world, "n", 1, [0, 1])
    assert beat(old, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    new_join(world, "another")
    assert sync(old, 2).error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", [0, 1, 3])
def test_assignments_come_in_the_version_that_the_member_speaks(version: int) -> None:
    world = make_world()
    new_join(world, subscribed_topic_names=[])
    old = world.responses.pop(old_join(world, metadata=subscription(["t"], version=version))).member_id
    synced = world.answer("sync_group", SyncGroupRequest(GROUP, 2, old), 5)
    assert int.from_bytes(synced.assignment[:2], "big") == version
    assert read_assignment(synced.assignment).assigned_partitions == (TopicPartition("t", (0, 1, 2, 3)),)


def test_leave_group_removes_members_of_either_protocol() -> None:
    world = make_world(consumer_migration_policy="upgrade")
    new_join(world)
    new_join(world, "s", instance_id="static")
    old = world.responses.pop(old_join(world)).member_id
    identities = [
        MemberIdentity(old),
        MemberIdentity("", "static"),
        MemberIdentity("who"),
        MemberIdentity("other", "static"),
        MemberIdentity("", "nowhere"),
    ]
    response = world.answer("leave_group", LeaveGroupRequest(GROUP, members=identities), 5)
    assert [row.error_code for row in response.members] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert world.group().members.keys() == {"n"}
    before = world.group().epoch
    world.answer("leave_group", LeaveGroupRequest(GROUP, members=[MemberIdentity("who")]), 5)
    assert world.group().epoch == before


def downgrade(world: ConsumerWorld) -> tuple[str, ClassicGroup]:
    """A group whose last member of the consumer protocol leaves while it still holds what the other one is to get."""
    new_join(world)
    old = world.responses.pop(old_join(world)).member_id
    world.answer("consumer.heartbeat", ConsumerGroupHeartbeatRequest(GROUP, "n", -1), 1)
    group = world.shard._groups[GROUP]
    assert isinstance(group, ClassicGroup)
    return old, group


def test_the_rest_of_a_group_becomes_a_classic_one_that_rebalances() -> None:
    world = make_world()
    old, group = downgrade(world)
    assert (group.state, group.generation, group.protocol_name) == (ClassicState.STABLE, 2, "range")
    assert read_assignment(group.members[old].assignment).assigned_partitions == ()
    world.advance(0)
    assert group.state is ClassicState.PREPARING_REBALANCE
    assert {key[0] for key in world.timers} == {"session", "join"}
    assert world.answer("heartbeat", HeartbeatRequest(GROUP, 2, old), 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    "settings", [{"consumer_migration_policy": "upgrade"}, {"consumer_migration_policy": "disabled"}, {"max_size": 0}]
)
def test_downgrades_need_a_policy_and_a_size_that_allow_them(settings: dict[str, Any]) -> None:
    world = make_world(**settings)
    with pytest.raises(AssertionError):
        downgrade(world)
    assert len(world.group().members) == 1


def test_a_group_that_might_be_written_by_halves_is_not_downgraded() -> None:
    """Its members would be gone if the coordinator failed after the first half, or if the second were refused."""
    world = make_world()
    new_join(world)
    olds = [world.responses.pop(old_join(world, metadata=large_subscription())).member_id for _ in range(3)]
    world.answer("consumer.heartbeat", ConsumerGroupHeartbeatRequest(GROUP, "n", -1), 1)
    assert world.group().members.keys() == {*olds}
    world.answer("leave_group", LeaveGroupRequest(GROUP, members=[MemberIdentity(olds.pop())]), 5)
    assert world.shard.list_groups()[0].group_type == "classic", "now it fits"


def test_a_static_member_that_is_replaced_leaves_a_group_that_might_be_written_by_halves_as_it_is() -> None:
    world = make_world()
    new_join(world, instance_id="i")
    olds = [world.responses.pop(old_join(world, metadata=large_subscription())).member_id for _ in range(3)]
    joined = world.responses.pop(old_join(world, instance_id="i"))
    assert joined.error_code == ErrorCode.NONE
    assert world.group().members.keys() == {*olds, joined.member_id}
    member = world.group().members[joined.member_id]
    assert member.classic is not None
    assert member.member_epoch == joined.generation_id


def test_a_session_that_ends_downgrades_as_well() -> None:
    world = make_world()
    new_join(world)
    old = world.responses.pop(old_join(world)).member_id
    for _ in range(10):
        world.advance(5_000)
        world.answer("sync_group", SyncGroupRequest(GROUP, 2, old), 5)
        world.answer("heartbeat", HeartbeatRequest(GROUP, 2, old), 4)
    assert world.shard.list_groups()[0].group_type == "classic"


@pytest.mark.parametrize("asked_to_give_up", [False, True])
def test_what_a_member_still_holds_survives_a_downgrade_and_an_upgrade_at_once(asked_to_give_up: bool) -> None:
    """The classic group is written down with what its members hold, not with what they were to have."""
    world = make_world()
    new_join(world, subscribed_topic_names=["none"])
    old = world.responses.pop(old_join(world)).member_id
    new_join(world, "m")
    assert world.shown_target("m") == "t/2,3"
    if asked_to_give_up:
        old_join(world, old, metadata=subscription(["t"], {"t": [0, 1, 2, 3]}))
    for name in ("n", "m"):
        world.answer("consumer.heartbeat", ConsumerGroupHeartbeatRequest(GROUP, name, -1), 1)
    assert world.shard.list_groups()[0].group_type == "classic"
    response = new_join(world, "m")
    assert response.assignment is not None
    assert not response.assignment.topic_partitions
    assert world.group().members[old].assigned == {world.topics.ids["t"]: frozenset(range(4))}


def test_a_static_member_that_changes_its_protocol_takes_its_partitions_along() -> None:
    world = make_world()
    new_join(world, instance_id="i")
    joined = world.responses.pop(old_join(world, instance_id="i"))
    assert joined.generation_id == 1
    group = world.shard._groups[GROUP]
    assert isinstance(group, ClassicGroup)
    world.advance(0)
    assert group.state is ClassicState.STABLE
    synced = world.answer("sync_group", SyncGroupRequest(GROUP, 1, joined.member_id, "i"), 5)
    assert read_assignment(synced.assignment).assigned_partitions == (TopicPartition("t", (0, 1, 2, 3)),)


def test_a_static_member_that_changes_its_subscription_along_with_its_protocol_rebalances() -> None:
    world = make_world()
    new_join(world, instance_id="i")
    world.responses.pop(old_join(world, instance_id="i", metadata=subscription(["u"])))
    world.advance(0)
    group = world.shard._groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicState.PREPARING_REBALANCE


def test_a_classic_member_may_replace_a_static_one_in_a_group_that_stays() -> None:
    world = make_world()
    new_join(world)
    new_join(world, "s", instance_id="i")
    joined = world.responses.pop(old_join(world, instance_id="i"))
    group = world.group()
    assert group.static_members == {"i": joined.member_id}
    assert group.classic_count == 1
    assert "s" not in group.members


def test_an_empty_consumer_group_is_founded_anew_by_a_classic_member() -> None:
    world = make_world()
    new_join(world)
    world.answer("consumer.heartbeat", ConsumerGroupHeartbeatRequest(GROUP, "n", -1), 1)
    old_join(world)
    assert world.shard.list_groups()[0].group_type == "classic"
    assert isinstance(world.replayed()._groups[GROUP], ClassicGroup)
