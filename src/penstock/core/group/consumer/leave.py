"""How members leave a consumer group, by request or because their session expired."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.group.consumer.context import ConsumerContext, cancel_timers
from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.consumer.members import ConsumerMember
from penstock.core.group.consumer.records import epoch_record, member_tombstones
from penstock.core.group.consumer.subscription import names_without
from penstock.core.group.contract import Effects
from penstock.core.group.migration import downgrade


def remove_members(
    context: ConsumerContext, group: ConsumerGroup, leaving: Sequence[ConsumerMember], effects: Effects, now_ms: int
) -> None:
    """Remove members and bump the epoch: the others find a new target at their next heartbeat.

    If only classic members remain, and settings allow it, the group becomes a classic one instead.
    """
    if not leaving:
        return
    if downgrade(context, group, leaving, effects, now_ms):
        return
    for member in leaving:
        effects.records += member_tombstones(group.group_id, member.member_id)
        cancel_timers(group, member.member_id, effects)
    metadata_hash = context.catalog.metadata_hash(names_without(group, leaving, effects.records))
    effects.records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
