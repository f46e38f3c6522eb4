"""ConsumerGroupHeartbeat: how members join, stay in, and leave a consumer group.

A request only has to carry what changed. A member epoch of 0 joins, -1 leaves, -2 is a static member that leaves
temporarily; otherwise it is the member's current epoch. The response carries the assignment until the member has
reported to own it, and whenever the request was a full one. Apache Kafka sends a changed assignment once; a client that
gave up on that response, as librdkafka does after one heartbeat interval, would never hear of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.core.group.assignors.contract import NO_PARTITIONS, Partitions, partitions_of, rows_of
from penstock.core.group.consumer.context import ConsumerContext, keep_session
from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.consumer.members import ConsumerMember, MemberState
from penstock.core.group.consumer.records import assignment_record
from penstock.core.group.consumer.update import (
    check_room,
    join_static,
    known_static_member,
    update_member,
)
from penstock.core.group.contract import Caller, Effects, Record
from penstock.core.group.group import refuse_if
from penstock.core.group.modern.members import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


def check_request(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Raises INVALID_REQUEST or UNSUPPORTED_ASSIGNOR for a request that is invalid for every group."""
    epoch = request.member_epoch
    if api_version >= 1 or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        refuse_if(not request.member_id.strip(), "MemberId can't be empty.")
    refuse_if(not request.group_id.strip(), "GroupId can't be empty.")
    refuse_if(request.instance_id is not None and not request.instance_id.strip(), "InstanceId can't be empty.")
    refuse_if(request.rack_id is not None and not request.rack_id.strip(), "RackId can't be empty.")
    refuse_if(epoch < STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    refuse_if(epoch == STATIC_LEAVE_EPOCH and request.instance_id is None, "InstanceId can't be null.")
    if epoch == JOIN_EPOCH:
        subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        refuse_if(request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided when joining.")
        refuse_if(request.topic_partitions is None, "TopicPartitions must be provided when joining.")
        refuse_if(bool(request.topic_partitions), "TopicPartitions must be empty when joining.")
        refuse_if(not subscribes, "SubscribedTopicNames or SubscribedTopicRegex must be provided when joining.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        reason = f"Assignor {request.server_assignor} is not supported; supported are {', '.join(assignors)}."
        raise ApiError(ErrorCode.UNSUPPORTED_ASSIGNOR, reason)


def heartbeat(
    context: ConsumerContext,
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller,
    effects: Effects,
    now_ms: int,
) -> ConsumerGroupHeartbeatResponse:
    """A member joins or sends its heartbeat. Raises ApiError, having changed nothing, if it may not."""
    check_room(context, group, request.member_id)
    member_id = request.member_id or context.new_member_id()
    owned = None if request.topic_partitions is None else partitions_of(request.topic_partitions)
    member = _find_or_join(group, request, member_id, owned, effects.records)
    proven = owned if _proves_revocation(group, member, request) else None
    updated = update_member(context, group, member, _updated(member, request, caller), proven, caller, effects, now_ms)
    keep_session(group, member_id, context.session_timeout_ms(group.group_id), effects, now_ms)
    _note_acknowledgement(group, member, updated, owned)
    told_everything = request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    assignment = None
    if told_everything or member_id not in group.acknowledged:
        assignment = Assignment([TopicPartitions(*row) for row in rows_of(updated.assigned)])
    return ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=context.heartbeat_interval_ms(group.group_id),
        assignment=assignment,
    )


def _proves_revocation(group: ConsumerGroup, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether a partition that the member does not report is one that it has given up.

    Until it has reported its last assignment it may still be about to take what it does not report. It must be asked.
    """
    return (
        request.member_epoch == JOIN_EPOCH
        or member.member_id in group.acknowledged
        or member.state not in (MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS)
    )


def _note_acknowledgement(
    group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember, owned: Partitions | None
) -> None:
    if updated.assigned != member.assigned or (owned is not None and owned != updated.assigned):
        group.acknowledged.discard(member.member_id)
    elif owned is not None:
        group.acknowledged.add(member.member_id)


def _find_or_join(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    owned: Partitions | None,
    records: list[Record],
) -> ConsumerMember:
    joins = request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        member = group.members.get(member_id) or ConsumerMember(member_id) if joins else group.known_member(member_id)
        _check_epoch(member, request.member_epoch, owned)
        return member
    if joins:
        return join_static(group, member_id, request.instance_id, classic=False, records=records)
    member = known_static_member(group, member_id, request.instance_id)
    _check_epoch(member, request.member_epoch, owned)
    return member


def _check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """Raises FENCED_MEMBER_EPOCH, unless the member may just have missed the response that raised its epoch."""
    missed_answer = (
        epoch == member.previous_member_epoch
        and owned is not None
        and all(numbers <= member.assigned.get(topic_id, frozenset()) for topic_id, numbers in owned.items())
    )
    if epoch > member.member_epoch or (epoch < member.member_epoch and not missed_answer):
        reason = (
            f"Member {member.member_id} is in epoch {member.member_epoch}, not {epoch}. It must revoke all its"
            " partitions and rejoin."
        )
        raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, reason)


def _updated(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> ConsumerMember:
    """The member updated by the request; fields that it leaves out stay the same."""
    timeout_ms, names, regex = (
        request.rebalance_timeout_ms,
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
    )
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
        client_id=caller.client_id,
        client_host=caller.host,
        classic=None,
    )


def leave_for_a_while(group: ConsumerGroup, member: ConsumerMember, effects: Effects) -> ConsumerGroupHeartbeatResponse:
    """A static member leaves temporarily, and keeps its partitions until it rejoins or its session expires."""
    left = replace(member, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation=NO_PARTITIONS)
    effects.records.append(assignment_record(group.group_id, left))
    return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=STATIC_LEAVE_EPOCH)


def leaving_member(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """The member that leaves; raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if request.instance_id is None:
        return group.known_member(request.member_id)
    return known_static_member(group, request.member_id, request.instance_id)
