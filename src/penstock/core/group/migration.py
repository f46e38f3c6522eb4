"""Migrates a live group between the classic and the consumer protocol.

A classic group of consumers becomes a consumer group when the first member joins with ConsumerGroupHeartbeat. Its
members keep their partitions and continue with JoinGroup, SyncGroup and Heartbeat (see consumer/classic_members.py),
each told to rejoin until it has reached the target. When the last member of the consumer protocol has left, the others
become a classic group again, which then rebalances. `group.consumer.migration.policy` sets which way is allowed.

Records do all of it: tombstones of one kind of group, then records of the other. What needs the new group, which exists
once they are replayed, is done by a timer that is due at once: ("consumer-downgraded", group).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from penstock.core.group.assignors.contract import NO_PARTITIONS, Partitions, group_by_topic, pairs_of
from penstock.core.group.classic.group import ClassicGroup, ClassicState
from penstock.core.group.classic.members import ClassicMember
from penstock.core.group.classic.rebalance import JOIN_TIMER, SYNC_TIMER, ClassicRebalance, join_refused, session_key
from penstock.core.group.consumer.context import ConsumerContext, cancel_timers, keep_session
from penstock.core.group.consumer.group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from penstock.core.group.consumer.members import ConsumerMember, MemberState
from penstock.core.group.consumer.protocol import (
    partitions_by_id,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
)
from penstock.core.group.consumer.records import (
    assignment_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from penstock.core.group.contract import Effects, Record, Timer
from penstock.core.group.sizes import fit_one_batch
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.messages.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.wire.messages.join_group import JoinGroupRequestProtocol
from penstock.wire.messages.sync_group import SyncGroupResponse
from penstock.wire.primitives import MalformedMessage

DOWNGRADED_TIMER = "consumer-downgraded"


def upgrade(context: ConsumerContext, classic: ClassicGroup, effects: Effects, now_ms: int) -> ConsumerGroup:
    """The consumer group that a classic group becomes once these effects are carried out.

    Nothing has changed yet: once that is certain, `release` answers what is still parked in the classic group.
    Raises GROUP_ID_NOT_FOUND for a group that cannot be migrated.
    """
    _check_upgrade(context, classic)
    members = _upgraded_members(context, classic)
    group_id, generation = classic.group_id, classic.generation
    records = [member_record(group_id, member) for member in members]
    names = {name for member in members for name in member.subscribed_topic_names}
    records.append(epoch_record(group_id, generation, context.catalog.metadata_hash(names)))
    records += [target_record(group_id, member.member_id, member.assigned) for member in members]
    records.append(target_epoch_record(group_id, generation))
    records += [assignment_record(group_id, member) for member in members]
    records = classic.tombstones() + records
    if not fit_one_batch(records):
        # Members whose records were not written before a failover would be lost.
        raise _refused(classic, "its members do not fit into one batch of the log")
    group = ConsumerGroup(group_id)
    for key, value, _ in records[1:]:
        group.replay(key, value)
    effects.records += records
    for member in members:
        assert member.classic is not None
        keep_session(group, member.member_id, member.classic.session_timeout_ms, effects, now_ms)
    return group


def _check_upgrade(context: ConsumerContext, classic: ClassicGroup) -> None:
    settings = context.settings
    reason = None
    if settings.consumer_migration_policy not in ("upgrade", "bidirectional"):
        reason = "group.consumer.migration.policy does not allow it"
    elif not classic.uses_consumer_protocol:
        reason = "its members are not consumers"
    elif len(classic.members) > settings.consumer_max_size:
        reason = "it has more members than a consumer group may have"
    if reason is not None:
        raise _refused(classic, reason)


def _refused(classic: ClassicGroup, reason: str) -> ApiError:
    message = f"The classic group {classic.group_id} cannot become a consumer group: {reason}."
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _upgraded_members(context: ConsumerContext, classic: ClassicGroup) -> list[ConsumerMember]:
    if not classic.members:
        return []
    # A group that has not finished its first rebalance has not chosen a protocol yet.
    protocol = classic.protocol_name or classic.select_protocol()
    taken: set[tuple[Uuid, int]] = set()
    assigned: dict[str, Partitions] = {}
    try:
        for member in classic.members.values():
            assigned[member.member_id] = _assigned(context, classic, member)
            taken |= pairs_of(assigned[member.member_id])
        return [
            _upgraded(context, classic, member, read_subscription(member.metadata(protocol)), assigned, taken)
            for member in classic.members.values()
        ]
    except MalformedMessage as error:
        raise _refused(classic, f"the metadata of its members cannot be read: {error}") from None


def _assigned(context: ConsumerContext, classic: ClassicGroup, member: ClassicMember) -> Partitions:
    if not member.assignment:
        return NO_PARTITIONS
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise _refused(classic, "its members use a custom assignor, whose data would be lost")
    return partitions_by_id(assignment.assigned_partitions, context.catalog.topics)


def _upgraded(
    context: ConsumerContext,
    classic: ClassicGroup,
    member: ClassicMember,
    subscription: ConsumerProtocolSubscription,
    assigned: Mapping[str, Partitions],
    taken: Set[tuple[Uuid, int]],
) -> ConsumerMember:
    """A classic member as one of the consumer group.

    A cooperative member may still work on partitions that it reported when it joined, although its assignment since
    took them away: it must first report that it has revoked them.
    """
    claimed = partitions_by_id(subscription.owned_partitions, context.catalog.topics)
    unrevoked = group_by_topic(pairs_of(claimed) - taken)
    return ConsumerMember(
        member.member_id,
        member_epoch=classic.generation,
        previous_member_epoch=classic.generation,
        state=MemberState.UNREVOKED_PARTITIONS if unrevoked else MemberState.STABLE,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned=assigned[member.member_id],
        pending_revocation=unrevoked,
        classic=ClassicMemberMetadata(
            member.session_timeout_ms,
            tuple(ClassicProtocol(protocol.name, bytes(protocol.metadata)) for protocol in member.protocols),
        ),
    )


def release(classic: ClassicGroup, rebalance: ClassicRebalance, effects: Effects) -> None:
    """Answer the requests parked in the former classic group with a rebalance, and cancel its timers."""
    again = ErrorCode.REBALANCE_IN_PROGRESS
    for member in classic.members.values():
        rebalance.answer_join(classic, member, join_refused(again, member.member_id), effects)
        rebalance.answer_sync(member, SyncGroupResponse(error_code=again), effects)
        effects.timers.append(Timer(session_key(classic.group_id, member.member_id), None))
    effects.timers += [Timer((JOIN_TIMER, classic.group_id), None), Timer((SYNC_TIMER, classic.group_id), None)]


def downgrade(
    context: ConsumerContext,
    group: ConsumerGroup,
    leaving: Sequence[ConsumerMember],
    effects: Effects,
    now_ms: int,
) -> bool:
    """Turn the members that remain into a classic group, and rebalance it.

    Changes nothing and returns False unless only classic members remain, and may form a classic group.
    """
    gone = {member.member_id for member in leaving}
    remaining = [member for member in group.members.values() if member.member_id not in gone]
    if not remaining or any(member.classic is None for member in remaining):
        return False
    return _become_classic(context, group, remaining, group.tombstones(), effects, now_ms, rebalances=True)


def downgrade_by_replacing(
    context: ConsumerContext,
    group: ConsumerGroup,
    former: ConsumerMember,
    joining: ConsumerMember,
    effects: Effects,
    now_ms: int,
) -> bool:
    """Make a classic group in which `joining` replaces `former`; the earlier records have already replaced it.

    It rebalances unless every member already owns its target. Changes nothing and returns False unless the former
    static member is the last one of the consumer protocol.
    """
    if former.classic is not None or group.classic_count != len(group.members) - 1:
        return False
    remaining = [joining if member is former else member for member in group.members.values()]
    settled = all(member.is_reconciled_to(group.epoch) for member in remaining)
    tombstones = group.tombstones({former.member_id: joining.member_id})
    return _become_classic(context, group, remaining, tombstones, effects, now_ms, rebalances=not settled)


def _become_classic(
    context: ConsumerContext,
    group: ConsumerGroup,
    members: Sequence[ConsumerMember],
    tombstones: Sequence[Record],
    effects: Effects,
    now_ms: int,
    *,
    rebalances: bool,
) -> bool:
    """Write the classic group with what its members hold, some of which the target may already assign to others.

    If the group is upgraded again before it has rebalanced, no other member gets partitions that are still in use.
    Changes nothing and returns False if settings do not allow it, or the group may be written by halves.
    """
    settings = context.settings
    if settings.consumer_migration_policy not in ("downgrade", "bidirectional") or len(members) > settings.max_size:
        return False
    classic = ClassicGroup(group.group_id, now_ms)
    classic.generation = group.epoch
    for member in members:
        classic.add(_downgraded(member), CONSUMER_PROTOCOL_TYPE)
    classic.protocol_name = classic.select_protocol()
    if rebalances:
        # Another coordinator that finds this generation must rebalance it, too: the partitions of those that have left
        # belong to no member.
        classic.leader = None
    assignments = {}
    for member in members:
        version = read_version(classic.members[member.member_id].metadata(classic.protocol_name))
        assignments[member.member_id] = write_assignment(_held(member), version, context.catalog.topics)
    records = [*tombstones, classic.record(assignments)]
    if not fit_one_batch([*effects.records, *records]):
        return False
    effects.records += records
    for member_id in group.members.keys() | classic.members.keys():
        cancel_timers(group, member_id, effects)
    effects.timers.append(Timer((DOWNGRADED_TIMER, group.group_id, ""), now_ms))
    return True


def _held(member: ConsumerMember) -> Partitions:
    held = dict(member.assigned)
    for topic_id, numbers in member.pending_revocation.items():
        held[topic_id] = held.get(topic_id, frozenset()) | numbers
    return held


def _downgraded(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        [JoinGroupRequestProtocol(name, metadata) for name, metadata in member.classic.supported_protocols],
    )


def downgraded(group: ClassicGroup, rebalance: ClassicRebalance, effects: Effects, now_ms: int) -> None:
    """The classic group exists: its members' sessions start, and it rebalances unless nothing changed for them."""
    for member in group.members.values():
        rebalance.keep_session(group, member, effects, now_ms)
    if group.state is ClassicState.STABLE and not group.is_assigned:
        rebalance.prepare(group, effects, now_ms)
