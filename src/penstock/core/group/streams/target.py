"""Computes a group's target assignment, and records what differs from the one before."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.group.contract import Record
from penstock.core.group.streams.assignor import MemberSpec, assign_sticky
from penstock.core.group.streams.context import STANDBY_REPLICAS_CONFIG, StreamsContext
from penstock.core.group.streams.group import StreamsGroup
from penstock.core.group.streams.internal_topics import ConfiguredTopology
from penstock.core.group.streams.members import StreamsMember
from penstock.core.group.streams.records import target_epoch_record, target_record
from penstock.core.group.streams.tasks import NO_TASK_SETS, TaskSets


def may_assign(context: StreamsContext, group: StreamsGroup, now_ms: int) -> bool:
    """Whether the last assignment is old enough; a group that has none yet need not wait."""
    last_ms = group.assignment_timestamp_ms
    return not last_ms or now_ms >= last_ms + context.assignment_interval_ms(group.group_id)


def update_target(
    group: StreamsGroup,
    members: Mapping[str, StreamsMember],
    configured: ConfiguredTopology,
    configs: Mapping[str, str],
    epoch: int,
    records: list[Record],
    now_ms: int,
) -> dict[str, TaskSets]:
    """Record a new target for the group epoch; returns it. No member has tasks before the topology is ready."""
    specs = {
        member_id: MemberSpec(member.process_id, group.targets.get(member_id, NO_TASK_SETS))
        for member_id, member in members.items()
    }
    targets = dict.fromkeys(specs, NO_TASK_SETS)
    if configured.is_ready and configured.subtopologies is not None:
        replicas = int(configs.get(STANDBY_REPLICAS_CONFIG, 0))
        targets = assign_sticky(specs, configured.subtopologies, replicas)
    assert targets.keys() == specs.keys(), "every member has a target, if an empty one"
    for member_id, target in targets.items():
        if target != group.targets.get(member_id):
            records.append(target_record(group.group_id, member_id, target))
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    return targets
