"""ShareGroupHeartbeat: how members join, stay in, and leave a share group.

A member epoch of 0 joins and -1 leaves; otherwise it is the member's current epoch, or the one before if it has missed
a response. The response carries an assignment if it changed, or if the request names the subscribed topics.

A heartbeat also notices share-partitions without state. Their initialization is recorded and requested; when it is
done, the next heartbeat of any member finds a new target to assign.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.core.group.assignors.contract import NO_PARTITIONS, MemberSpec, Partitions, rows_of
from penstock.core.group.assignors.simple import assign_simple
from penstock.core.group.contract import Caller, Effects, Record, Timer
from penstock.core.group.group import refuse_if
from penstock.core.group.modern.members import JOIN_EPOCH, LEAVE_EPOCH
from penstock.core.group.share.context import ShareContext, session_key
from penstock.core.group.share.group import ShareGroup
from penstock.core.group.share.members import ShareMember
from penstock.core.group.share.partitions import NewState, difference, new_states, union
from penstock.core.group.share.records import (
    assignment_record,
    epoch_record,
    member_record,
    member_tombstones,
    state_record,
    target_epoch_record,
    target_record,
)
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

# How long an initialization may take before it is requested again; as in Kafka.
INITIALIZE_RETRY_MS = 30_000
SOON_MS = 300


class HeartbeatResult(NamedTuple):
    """The response, and the share-partitions that are to be initialized once its records are committed."""

    response: ShareGroupHeartbeatResponse
    to_initialize: Sequence[NewState] = ()


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Raises INVALID_REQUEST for a request that is invalid for every group."""
    refuse_if(not request.member_id.strip(), "MemberId can't be empty.")
    refuse_if(not request.group_id.strip(), "GroupId can't be empty.")
    refuse_if(request.rack_id is not None and not request.rack_id.strip(), "RackId can't be empty.")
    joins_nothing = request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names
    refuse_if(joins_nothing, "SubscribedTopicNames must be set in first request.")
    refuse_if(request.member_epoch < LEAVE_EPOCH, "MemberEpoch is invalid.")


def heartbeat(
    context: ShareContext,
    group: ShareGroup,
    request: ShareGroupHeartbeatRequest,
    caller: Caller,
    effects: Effects,
    now_ms: int,
) -> HeartbeatResult:
    """A member joins or sends its heartbeat. Raises ApiError, having changed nothing, if it may not."""
    member = _find_or_join(context, group, request)
    names = request.subscribed_topic_names
    updated = replace(
        member,
        rack_id=request.rack_id or member.rack_id,
        client_id=caller.client_id,
        client_host=caller.host,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
    )
    if updated != member:
        group.check_metadata(context.settings, context.kept, updated, caller)
        effects.records.append(member_record(group.group_id, updated))
    all_names = _names_after(group, member, updated)
    is_new_subscription = updated.subscribed_topic_names != member.subscribed_topic_names
    epoch = _bump_epoch_if_needed(context, group, all_names, effects.records, force=is_new_subscription)
    if epoch > group.assignment_epoch:
        updated = _take_over(updated, epoch, _update_target(context, group, epoch, updated, effects.records))
    else:
        target = group.targets.get(updated.member_id, NO_PARTITIONS)
        updated = _take_over(updated, group.assignment_epoch, target)
    if (updated.member_epoch, updated.assigned) != (member.member_epoch, member.assigned):
        effects.records.append(assignment_record(group.group_id, updated))
    context.keep_session(group, updated.member_id, effects, now_ms)
    group.metadata_is_current = group.assignment_is_current = True
    assignment = None
    if request.member_epoch == JOIN_EPOCH or names is not None or updated.assigned != member.assigned:
        assignment = Assignment([TopicPartitions(*row) for row in rows_of(updated.assigned)])
    wanted = _initialize_if_needed(context, group, all_names, effects, now_ms)
    interval_ms = context.heartbeat_interval_ms(group.group_id)
    if wanted or group.partitions.initializing:
        # What is being initialized is assigned with the next heartbeat: a new group should not wait 5 s for it.
        interval_ms = min(interval_ms, SOON_MS)
    response = ShareGroupHeartbeatResponse(
        member_id=updated.member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=assignment,
    )
    return HeartbeatResult(response, new_states(wanted, epoch))


def _find_or_join(context: ShareContext, group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """Raises GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH."""
    member = group.members.get(request.member_id)
    size_max = context.settings.share_max_size
    if member is None and len(group.members) >= size_max:
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"The share group already has {size_max} members.")
    if request.member_epoch == JOIN_EPOCH:
        return member or ShareMember(request.member_id)
    member = group.known_member(request.member_id)
    if request.member_epoch not in (member.member_epoch, member.previous_member_epoch):
        reason = (
            f"Member {member.member_id} is in epoch {member.member_epoch}, not {request.member_epoch}. It must abandon"
            " all its partitions and rejoin."
        )
        raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, reason)
    return member


def _names_after(group: ShareGroup, member: ShareMember, updated: ShareMember) -> set[str]:
    """The subscribed topics once `member` is `updated`."""
    left = {
        name for name in member.subscribed_topic_names - updated.subscribed_topic_names if group.name_counts[name] <= 1
    }
    return group.name_counts.keys() - left | updated.subscribed_topic_names


def _bump_epoch_if_needed(
    context: ShareContext, group: ShareGroup, names: Collection[str], records: list[Record], *, force: bool
) -> int:
    """The group's epoch with these subscribed topics: a new one if they, or new state, need a new assignment."""
    bump = force
    if not bump and group.assignment_epoch >= group.epoch:
        bump = not group.assignment_is_current and _is_assignment_pending(context, group)
    if not bump and group.metadata_is_current:
        return group.epoch
    metadata_hash = context.catalog.metadata_hash(names)
    if not bump and metadata_hash == group.metadata_hash:
        return group.epoch
    records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
    return group.epoch + 1


def _is_assignment_pending(context: ShareContext, group: ShareGroup) -> bool:
    """Whether partitions of subscribed topics have become assignable since the target was computed."""
    assigned: Partitions = {}
    for target in group.targets.values():
        assigned = union(assigned, target)
    return bool(difference(_assignable(context, group, context.catalog.ids(group.name_counts)), assigned))


def _assignable(context: ShareContext, group: ShareGroup, topics: dict[Uuid, str]) -> Partitions:
    """The partitions of existing topics whose state is initialized."""
    cluster = context.catalog.topics
    return {
        topic_id: group.partitions.initialized[topic_id] & frozenset(range(cluster.partition_count(name) or 0))
        for topic_id, name in topics.items()
        if topic_id in group.partitions.initialized
    }


def _update_target(
    context: ShareContext, group: ShareGroup, epoch: int, changed: ShareMember, records: list[Record]
) -> Partitions:
    """Record a new target for the group epoch; returns the target of the member being updated."""
    topics: dict[Uuid, str] = {}
    specs: dict[str, MemberSpec] = {}
    # Members mostly share a few subscriptions, so each one is looked up once.
    subscriptions: dict[frozenset[str], frozenset[Uuid]] = {}
    for member in {**group.members, changed.member_id: changed}.values():
        names = member.subscribed_topic_names
        if names not in subscriptions:
            found = context.catalog.ids(names)
            topics.update(found)
            subscriptions[names] = frozenset(found)
        assigned = group.targets.get(member.member_id, NO_PARTITIONS)
        specs[member.member_id] = MemberSpec(subscriptions[names], assigned)
    targets = assign_simple(specs, _assignable(context, group, topics))
    for member_id, target in targets.items():
        if target != group.targets.get(member_id):
            records.append(target_record(group.group_id, member_id, target))
    records.append(target_epoch_record(group.group_id, epoch))
    assert targets.keys() == specs.keys(), "every member has a target, if an empty one"
    return targets[changed.member_id]


def _take_over(member: ShareMember, target_epoch: int, target: Partitions) -> ShareMember:
    if member.member_epoch == target_epoch:
        return member
    return replace(member, member_epoch=target_epoch, previous_member_epoch=member.member_epoch, assigned=target)


def _initialize_if_needed(
    context: ShareContext, group: ShareGroup, names: Collection[str], effects: Effects, now_ms: int
) -> Partitions:
    """Record which partitions of subscribed topics are to be initialized now; returns them."""
    cluster = context.catalog.topics
    state = group.partitions
    wanted: dict[Uuid, frozenset[int]] = {}
    for topic_id, name in context.catalog.ids(names).items():
        count = cluster.partition_count(name) or 0
        initialized = state.initialized.get(topic_id, frozenset())
        if len(initialized) >= count:
            continue
        missing = frozenset(range(count)) - initialized
        asked_ms = group.asked_ms.get(topic_id)
        if asked_ms is not None and now_ms - asked_ms < INITIALIZE_RETRY_MS:
            missing -= state.initializing.get(topic_id, frozenset())
        if missing:
            wanted[topic_id] = missing
            group.asked_ms[topic_id] = now_ms
    if wanted:
        effects.records.append(state_record(group.group_id, state.begin(wanted), cluster))
    return wanted


def leave(context: ShareContext, group: ShareGroup, member_id: str, effects: Effects) -> ShareGroupHeartbeatResponse:
    """A member leaves, or is removed; the others find a new target at their next heartbeat."""
    member = group.known_member(member_id)
    effects.records += member_tombstones(group.group_id, member_id)
    left = {name for name in member.subscribed_topic_names if group.name_counts[name] <= 1}
    metadata_hash = context.catalog.metadata_hash(group.name_counts.keys() - left)
    effects.records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
    effects.timers.append(Timer(session_key(group, member_id), None))
    return ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=LEAVE_EPOCH)
