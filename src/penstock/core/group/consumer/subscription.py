"""Keeps a group's patterns resolved, and notices when subscriptions or topics require a new epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.core.group.consumer.context import ConsumerContext
from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.consumer.members import ConsumerMember
from penstock.core.group.consumer.records import (
    epoch_record,
    partition_metadata_tombstone,
    regex_record,
    regex_tombstone,
)
from penstock.core.group.contract import Caller, Record
from penstock.core.group.sizes import check_resolved_bytes, content_bytes
from penstock.core.group.subscription.topics import ResolvedRegex
from penstock.model.errors import ApiError, ErrorCode

# New topics are looked for at most this often, so that creating many of them does not cause as many rebalances.
REGEX_REFRESH_PAUSE_MS = 10_000
# How many different patterns the members of one group may have, all of which are resolved anew together; those that
# this processor time does not suffice for keep their earlier result.
REGEXES_MAX = 100
REFRESH_S_MAX = 0.2


class Resolved(NamedTuple):
    """A group's patterns after the update, whether they require a new epoch, and which topics they match."""

    regexes: Mapping[str, ResolvedRegex]
    changed: bool
    version: int


def update_regexes(
    context: ConsumerContext,
    group: ConsumerGroup,
    member: ConsumerMember,
    updated: ConsumerMember,
    caller: Caller,
    records: list[Record],
    now_ms: int,
) -> Resolved:
    """Resolve patterns that are new or were last resolved too long ago, and forget those that no member uses any more.

    `member` becomes `updated`. Topics that `caller` may not describe are left out. Raises INVALID_REGULAR_EXPRESSION
    if the member brings an invalid pattern, GROUP_MAX_SIZE_REACHED if all patterns match too many names.
    """
    regexes = dict(group.resolved_regexes)
    old, new = member.subscribed_topic_regex, updated.subscribed_topic_regex
    # Even if others still use the old pattern: this member gets its topics no longer.
    changed = old != new
    subscribed = set(group.regex_counts)
    if changed:
        if old and group.regex_counts[old] == 1:
            records.append(regex_tombstone(group.group_id, old))
            subscribed.discard(old)
            regexes.pop(old, None)
        if new:
            context.catalog.resolve(new)
            subscribed.add(new)
            if len(subscribed) > REGEXES_MAX:
                reason = (
                    f"The members of the group have {REGEXES_MAX} different regular expressions, as many as they may."
                )
                raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)
    if not subscribed or not _needs_refresh(context, group, subscribed, now_ms):
        return Resolved(regexes, changed, group.regex_version)
    stop_s = context.catalog.cpu_s() + REFRESH_S_MAX
    for regex in sorted(subscribed):
        before = regexes.get(regex)
        if before is not None and context.catalog.cpu_s() > stop_s:
            topics = before.topics
        else:
            topics = _resolve(context, regex, before, caller)
        changed = changed or before is None or before.topics != topics
        regexes[regex] = ResolvedRegex(topics, context.catalog.version, now_ms)
        records.append(regex_record(group.group_id, regex, regexes[regex]))
    if old != new:
        check_resolved_bytes(context.settings, sum(content_bytes(resolved.topics) for resolved in regexes.values()))
    return Resolved(regexes, changed, context.catalog.version)


def _needs_refresh(context: ConsumerContext, group: ConsumerGroup, subscribed: Collection[str], now_ms: int) -> bool:
    if not group.resolved_regexes.keys() >= set(subscribed):
        return True
    age_ms = now_ms - max(resolved.timestamp_ms for resolved in group.resolved_regexes.values())
    if group.regex_version != context.catalog.version:
        return age_ms > REGEX_REFRESH_PAUSE_MS
    return age_ms > context.settings.consumer_regex_refresh_interval_ms


def _resolve(context: ConsumerContext, regex: str, before: ResolvedRegex | None, caller: Caller) -> frozenset[str]:
    """The topics that a pattern matches now; one that has become too expensive keeps its earlier result."""
    try:
        topics = context.catalog.resolve(regex)
    except ApiError:
        return frozenset() if before is None else before.topics
    return topics if caller.may_describe is None else frozenset(filter(caller.may_describe, topics))


def bump_epoch_if_needed(
    context: ConsumerContext,
    group: ConsumerGroup,
    member: ConsumerMember,
    updated: ConsumerMember,
    resolved: Resolved,
    records: list[Record],
) -> int:
    """The group's epoch once `member` is `updated`: a new one if that or the topics require a new assignment."""
    names_changed = updated.subscribed_topic_names != member.subscribed_topic_names
    bump = group.epoch == 0 or names_changed or resolved.changed
    if not bump and group.metadata_is_current:
        return group.epoch
    left = {
        name for name in member.subscribed_topic_names - updated.subscribed_topic_names if group.name_counts[name] <= 1
    }
    names = group.name_counts.keys() - left | updated.subscribed_topic_names
    for regex in resolved.regexes.values():
        names |= regex.topics
    metadata_hash = context.catalog.metadata_hash(names)
    epoch = group.epoch
    if bump or metadata_hash != group.metadata_hash:
        epoch += 1
        records.append(epoch_record(group.group_id, epoch, metadata_hash))
    if group.has_partition_metadata:
        records.append(partition_metadata_tombstone(group.group_id))
    return epoch


def names_without(group: ConsumerGroup, leaving: Collection[ConsumerMember], records: list[Record]) -> set[str]:
    """The topics that remain subscribed once members have left; patterns that only they used are deleted."""
    names = group.name_counts.copy()
    regexes = group.regex_counts.copy()
    for member in leaving:
        names.subtract(member.subscribed_topic_names)
        if member.subscribed_topic_regex:
            regexes[member.subscribed_topic_regex] -= 1
    remaining = {name for name, count in names.items() if count > 0}
    for regex, count in regexes.items():
        if count > 0:
            remaining |= group.resolved_regexes.get(regex, ResolvedRegex()).topics
        else:
            records.append(regex_tombstone(group.group_id, regex))
    return remaining
