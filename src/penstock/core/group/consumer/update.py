"""Applies a member's changes to its group: the steps that a heartbeat and a classic member's JoinGroup share.

1. The member's record is written if it changed; a changed subscription, or changed topics, bump the group's epoch.
2. A new epoch gets a new target assignment.
3. The member takes a step towards its target.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.core.group.assignors.contract import NO_PARTITIONS, Partitions
from penstock.core.group.consumer.context import REBALANCE_TIMER, ConsumerContext, cancel_timer, timer_key
from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.consumer.members import ConsumerMember, MemberState
from penstock.core.group.consumer.reconcile import reconcile
from penstock.core.group.consumer.records import assignment_record, member_record, member_tombstones, target_record
from penstock.core.group.consumer.subscription import bump_epoch_if_needed, update_regexes
from penstock.core.group.consumer.target import update_target
from penstock.core.group.contract import Caller, Effects, Record, Timer
from penstock.core.group.modern.members import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from penstock.model.errors import ApiError, ErrorCode


def update_member(
    context: ConsumerContext,
    group: ConsumerGroup,
    member: ConsumerMember,
    updated: ConsumerMember,
    owned: Partitions | None,
    caller: Caller,
    effects: Effects,
    now_ms: int,
) -> ConsumerMember:
    """Record that `member` is now `updated`, and everything that follows from it; returns the resulting member."""
    records = effects.records
    if updated != member:
        group.check_metadata(context.settings, context.kept, updated, caller)
        records.append(member_record(group.group_id, updated))
    resolved = update_regexes(context, group, member, updated, caller, records, now_ms)
    epoch = bump_epoch_if_needed(context, group, member, updated, resolved, records)
    if epoch > group.assignment_epoch:
        target = update_target(context, group, epoch, updated, resolved.regexes, records)
        target_epoch = epoch
    else:
        target = group.target(updated.member_id, updated.instance_id)
        target_epoch = group.assignment_epoch
    updated = reconcile_member(group, updated, target_epoch, target, owned, effects, now_ms)
    # Soft state comes last, when no error is possible any more.
    group.metadata_is_current = True
    assert epoch >= group.epoch, "a group's epoch never decreases"
    group.regex_version = resolved.version
    return updated


def reconcile_member(
    group: ConsumerGroup,
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    effects: Effects,
    now_ms: int,
) -> ConsumerMember:
    """Take a member a step further, and start its rebalance timeout if it must revoke partitions first."""
    if member.is_reconciled_to(target_epoch):
        return member
    updated = reconcile(member, target_epoch, target, owned, group.is_owned)
    if updated == member:
        return member
    assert updated.member_id == member.member_id
    assert updated.previous_member_epoch == member.member_epoch, "a step remembers the epoch before it"
    effects.records.append(assignment_record(group.group_id, updated))
    if updated.classic is None:
        if updated.state is MemberState.UNREVOKED_PARTITIONS:
            await_revocation(group, updated, effects, now_ms)
        else:
            cancel_timer(REBALANCE_TIMER, group, updated.member_id, effects)
    return updated


def await_revocation(group: ConsumerGroup, member: ConsumerMember, effects: Effects, now_ms: int) -> None:
    """Start the rebalance timeout within which a member must revoke its partitions."""
    deadline_ms = now_ms + member.rebalance_timeout_ms
    effects.timers.append(Timer(timer_key(REBALANCE_TIMER, group.group_id, member.member_id), deadline_ms))


def known_static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """The member of that instance, if it has that id; raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    member = group.static_member(instance_id)
    if member is None:
        reason = f"Instance {instance_id} is not known in group {group.group_id}."
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, reason)
    if member.member_id != member_id:
        reason = f"Static member {member_id} of instance {instance_id} was fenced by member {member.member_id}."
        raise ApiError(ErrorCode.FENCED_INSTANCE_ID, reason)
    return member


def join_static(
    group: ConsumerGroup, member_id: str, instance_id: str, *, classic: bool, records: list[Record]
) -> ConsumerMember:
    """A static instance starts: it is new, or inherits everything from its former member.

    In the consumer protocol the former member must have left first; raises UNRELEASED_INSTANCE_ID. If either of them
    uses the classic protocol the new one simply replaces the old, as in classic groups.
    """
    former = group.static_member(instance_id)
    if former is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if not classic and former.classic is None and former.member_epoch != STATIC_LEAVE_EPOCH:
        reason = f"Instance {instance_id} is in use by member {former.member_id}, so {member_id} cannot join."
        raise ApiError(ErrorCode.UNRELEASED_INSTANCE_ID, reason)
    member = replace(former, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)
    records += member_tombstones(group.group_id, former.member_id)
    records.append(member_record(group.group_id, member))
    records.append(target_record(group.group_id, member_id, group.targets.get(former.member_id, NO_PARTITIONS)))
    records.append(assignment_record(group.group_id, member))
    return member


def check_room(context: ConsumerContext, group: ConsumerGroup, member_id: str) -> None:
    """Raises GROUP_MAX_SIZE_REACHED if there is no room for a new member."""
    size_max = context.settings.consumer_max_size
    if len(group.members) >= size_max and member_id not in group.members:
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"The consumer group already has {size_max} members.")
