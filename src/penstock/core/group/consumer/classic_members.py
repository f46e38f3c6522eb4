"""Members of a consumer group that still use the classic protocol, while the group migrates.

They go through the same states as all other members; only the requests differ. A member's generation is its member
epoch. It never leads: the coordinator assigns. Where the consumer protocol would send a new assignment in a heartbeat
response, a classic member's heartbeat is answered with REBALANCE_IN_PROGRESS, and it fetches the assignment with
JoinGroup and SyncGroup. The owned partitions in its next JoinGroup confirm that it has revoked the others.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.core.group.assignors.contract import Partitions
from penstock.core.group.classic.requests import leave_response, leaving_members
from penstock.core.group.consumer.context import (
    JOIN_TIMER,
    SYNC_TIMER,
    ConsumerContext,
    await_join,
    cancel_timer,
    keep_session,
    timer_key,
)
from penstock.core.group.consumer.group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from penstock.core.group.consumer.leave import remove_members
from penstock.core.group.consumer.members import ConsumerMember, MemberState
from penstock.core.group.consumer.protocol import partitions_by_id, read_subscription, read_version, write_assignment
from penstock.core.group.consumer.update import (
    check_room,
    join_static,
    known_static_member,
    reconcile_member,
    update_member,
)
from penstock.core.group.contract import Caller, Effects, Timer
from penstock.core.group.migration import downgrade_by_replacing
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.wire.primitives import MalformedMessage

# From this version of JoinGroup on, a new member first gets an id and then joins with it.
_KNOWN_ID_VERSION = 4


def join(
    context: ConsumerContext,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    caller: Caller,
    effects: Effects,
    now_ms: int,
) -> JoinGroupResponse:
    """Add a classic member, or reconcile it further. Raises ApiError, having changed nothing, if it may not join."""
    is_new = not request.member_id
    member_id = request.member_id or context.new_member_id()
    check_room(context, group, member_id)
    subscription = _check_protocols(group, member_id, request)
    instance_id = request.group_instance_id
    if is_new and instance_id is None and caller.api_version >= _KNOWN_ID_VERSION:
        return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    owned = partitions_by_id(subscription.owned_partitions, context.catalog.topics)
    former = group.static_member(instance_id)
    if instance_id is None:
        member = group.members.get(member_id) or _newcomer(member_id, owned)
    elif is_new:
        member = join_static(group, member_id, instance_id, classic=True, records=effects.records)
    else:
        member = known_static_member(group, member_id, instance_id)
    updated = _updated(member, request, subscription, caller)
    downgraded = None
    if former is not None and former.classic is None:
        downgraded = _replace_last(context, group, former, member, updated, owned, effects, now_ms)
    if downgraded is not None:
        updated = downgraded
    else:
        updated = update_member(context, group, member, updated, owned, caller, effects, now_ms)
        cancel_timer(JOIN_TIMER, group, member_id, effects)
        keep_session(group, member_id, request.session_timeout_ms, effects, now_ms)
        sync_deadline_ms = now_ms + updated.rebalance_timeout_ms
        effects.timers.append(Timer(timer_key(SYNC_TIMER, group.group_id, member_id), sync_deadline_ms))
    return JoinGroupResponse(
        generation_id=updated.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        member_id=member_id,
    )


def _replace_last(
    context: ConsumerContext,
    group: ConsumerGroup,
    former: ConsumerMember,
    member: ConsumerMember,
    updated: ConsumerMember,
    owned: Partitions,
    effects: Effects,
    now_ms: int,
) -> ConsumerMember | None:
    """The member in the classic group that its joining makes of this group; None if it stays a consumer group."""
    trial = Effects(records=[*effects.records])
    if updated.subscribed_topic_names == member.subscribed_topic_names:
        target = group.target(updated.member_id, updated.instance_id)
        updated = reconcile_member(group, updated, group.assignment_epoch, target, owned, trial, now_ms)
    if not downgrade_by_replacing(context, group, former, updated, trial, now_ms):
        return None
    effects.records[:] = trial.records
    effects.timers += trial.timers
    return updated


def _newcomer(member_id: str, owned: Partitions) -> ConsumerMember:
    """A member that has just been given its id; one that claims to own partitions was removed without noticing."""
    if owned:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is no longer a member.")
    return ConsumerMember(member_id)


def _check_protocols(group: ConsumerGroup, member_id: str, request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """The member's subscription; one of its protocols must be supported by all classic members."""
    supported = any(
        group.classic_protocol_counts[protocol.name] == group.classic_count for protocol in request.protocols
    )
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not supported:
        reason = f"The protocols of member {member_id} are not those of the group's other classic members."
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason)
    try:
        return read_subscription(request.protocols[0].metadata)
    except MalformedMessage as error:
        reason = f"The subscription of member {member_id} cannot be read: {error}."
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason) from None


def _updated(
    member: ConsumerMember, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, caller: Caller
) -> ConsumerMember:
    # Version 0 has no rebalance timeout.
    rebalance_timeout_ms = request.rebalance_timeout_ms
    protocols = tuple(ClassicProtocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        client_id=caller.client_id,
        client_host=caller.host,
        subscribed_topic_names=frozenset(subscription.topics),
        # Classic consumers resolve their patterns themselves.
        subscribed_topic_regex="",
        classic=ClassicMemberMetadata(request.session_timeout_ms, protocols),
    )


def sync(
    context: ConsumerContext, group: ConsumerGroup, request: SyncGroupRequest, effects: Effects, now_ms: int
) -> SyncGroupResponse:
    """Give a classic member what it owns now. Raises ApiError if it must rejoin first."""
    member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    protocol = classic.supported_protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        protocol.name,
    ):
        reason = f"Member {member.member_id} joined with the protocol {protocol.name}."
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason)
    if group.epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        await_join(group, member.member_id, member.rebalance_timeout_ms, effects, now_ms)
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    cancel_timer(SYNC_TIMER, group, member.member_id, effects)
    keep_session(group, member.member_id, classic.session_timeout_ms, effects, now_ms)
    version = read_version(protocol.metadata)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(member.assigned, version, context.catalog.topics),
    )


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, effects: Effects, now_ms: int) -> ErrorCode:
    """Extend a classic member's session, and tell it when to rejoin. Raises ApiError if it is not a classic member."""
    member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    keep_session(group, member.member_id, classic.session_timeout_ms, effects, now_ms)
    must_join = (
        member.member_epoch < group.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_release(member))
    )
    if not must_join:
        return ErrorCode.NONE
    await_join(group, member.member_id, member.rebalance_timeout_ms, effects, now_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMemberMetadata]:
    if instance_id is None:
        member = group.known_member(member_id)
    else:
        member = known_static_member(group, member_id, instance_id)
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if generation != member.member_epoch:
        reason = f"Member {member_id} is in generation {member.member_epoch}, not {generation}."
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, reason)
    return member, member.classic


def leave(
    context: ConsumerContext,
    group: ConsumerGroup,
    request: LeaveGroupRequest,
    caller: Caller,
    effects: Effects,
    now_ms: int,
) -> LeaveGroupResponse:
    """Remove members, each with its own answer; administrators remove members of either protocol this way."""
    leaving: dict[str, ConsumerMember] = {}
    responses = [_leave_one(group, identity, leaving) for identity in leaving_members(request, caller)]
    remove_members(context, group, list(leaving.values()), effects, now_ms)
    return leave_response(responses, caller)


def _leave_one(group: ConsumerGroup, identity: MemberIdentity, leaving: dict[str, ConsumerMember]) -> MemberResponse:
    member_id, instance_id, _ = identity
    error = ErrorCode.NONE
    try:
        if instance_id is None:
            member = group.known_member(member_id)
        else:
            # An administrator knows the instance id, but not the current member id.
            member = known_static_member(group, member_id or group.static_members.get(instance_id, ""), instance_id)
        leaving[member.member_id] = member
    except ApiError as refused:
        error = refused.code
    return MemberResponse(member_id, instance_id, error)
