"""Computes a group's target assignment, and records what differs from the one before."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.group.assignors.contract import NO_PARTITIONS, GroupSpec, MemberSpec, Partitions
from penstock.core.group.assignors.uniform import ASSIGNORS
from penstock.core.group.consumer.context import ConsumerContext
from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.consumer.members import ConsumerMember
from penstock.core.group.consumer.records import target_epoch_record, target_record
from penstock.core.group.contract import Record
from penstock.core.group.subscription.topics import ResolvedRegex
from penstock.model.ids import Uuid


def preferred_assignor(context: ConsumerContext, group: ConsumerGroup, changed: ConsumerMember | None = None) -> str:
    """The assignor that most members prefer; the broker's first one if none has a preference.

    `changed` is a member after its update.
    """
    configured = context.settings.consumer_assignors
    counts = dict(group.assignor_counts)
    if changed is not None:
        former = group.members.get(changed.member_id) or group.static_member(changed.instance_id)
        if former is not None and former.server_assignor is not None:
            counts[former.server_assignor] -= 1
        if changed.server_assignor is not None:
            counts[changed.server_assignor] = counts.get(changed.server_assignor, 0) + 1
    return max(configured, key=lambda name: counts.get(name, 0))


def update_target(
    context: ConsumerContext,
    group: ConsumerGroup,
    epoch: int,
    changed: ConsumerMember,
    resolved: Mapping[str, ResolvedRegex],
    records: list[Record],
) -> Partitions:
    """Record a new target for the group epoch; returns the target of the member being updated."""
    members = {member.member_id: member for member in group.members.values()}
    former = group.static_member(changed.instance_id)
    if former is not None:
        del members[former.member_id]
    members[changed.member_id] = changed
    spec = _group_spec(context, group, members, resolved)
    targets = ASSIGNORS[preferred_assignor(context, group, changed)](spec)
    for member_id, target in targets.items():
        former_target = group.targets.get(member_id)
        if target is not former_target and target != former_target:
            records.append(target_record(group.group_id, member_id, target))
    records.append(target_epoch_record(group.group_id, epoch))
    return targets[changed.member_id]


def _group_spec(
    context: ConsumerContext,
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    resolved: Mapping[str, ResolvedRegex],
) -> GroupSpec:
    names: dict[Uuid, str] = {}
    # Members mostly share a few subscriptions, so each one is looked up once.
    subscriptions: dict[tuple[frozenset[str], str], frozenset[Uuid]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, member in members.items():
        subscription = (member.subscribed_topic_names, member.subscribed_topic_regex)
        topics = subscriptions.get(subscription)
        if topics is None:
            by_pattern = resolved.get(member.subscribed_topic_regex, ResolvedRegex()).topics
            found = context.catalog.ids(member.subscribed_topic_names | by_pattern)
            names.update(found)
            topics = subscriptions[subscription] = frozenset(found)
        assigned = group.targets.get(member_id)
        if assigned is None:
            assigned = group.target(member_id, member.instance_id) if member.instance_id else NO_PARTITIONS
        specs[member_id] = MemberSpec(topics, assigned, member.instance_id, member.rack_id)
    cluster = context.catalog.topics
    counts = {topic_id: cluster.partition_count(name) or 0 for topic_id, name in names.items()}
    return GroupSpec(specs, counts, lambda topic_id, partition: cluster.racks(names[topic_id], partition))
