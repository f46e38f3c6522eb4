"""StreamsGroupHeartbeat: how members join, stay in, and leave a streams group.

A request only has to carry what changed. A member epoch of 0 joins, with the whole topology, and -1 leaves; otherwise
it is the member's current epoch. The steps of a heartbeat:

1. The member's record is written if it changed; the first member's topology is kept as the group's.
2. If topics have changed the topology is configured anew. What is missing is said in the response's status, and
   internal topics are to be created by the caller.
3. A changed member, topology, topic or setting bumps the group's epoch, and a new epoch gets a new target assignment:
   not at once, but after the initial delay of a group that was empty, and not more often than settings say.
4. The member takes a step towards its target. The response carries tasks only if they changed, or when it joins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.core.group.assignors.contract import rows_of
from penstock.core.group.contract import Caller, Effects, Record, Timer
from penstock.core.group.modern.members import JOIN_EPOCH, LEAVE_EPOCH
from penstock.core.group.streams.context import (
    STREAMS_INITIAL_TIMER,
    StreamsContext,
    await_revocation,
    cancel_timers,
)
from penstock.core.group.streams.endpoints import endpoints_of
from penstock.core.group.streams.group import StreamsGroup
from penstock.core.group.streams.internal_topics import ConfiguredTopology, InternalTopic, configure
from penstock.core.group.streams.members import MemberState, StreamsMember
from penstock.core.group.streams.reconcile import holders_of, reconcile
from penstock.core.group.streams.records import (
    assignment_record,
    epoch_record,
    member_record,
    member_tombstones,
    topology_record,
)
from penstock.core.group.streams.status import Status, StatusCode
from penstock.core.group.streams.target import may_assign, update_target
from penstock.core.group.streams.tasks import NO_TASK_SETS, TaskSets, tasks_of
from penstock.core.group.streams.topology import Topology, topology_of
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages import streams_group_heartbeat as wire
from penstock.wire.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)
from penstock.wire.messages.streams_group_records import Endpoint


class HeartbeatResult(NamedTuple):
    """The response, and the internal topics that the group lacks."""

    response: StreamsGroupHeartbeatResponse
    missing: Sequence[InternalTopic] = ()


class _Configuration(NamedTuple):
    """The topology with the topics there are, and whether the group must be assigned anew for it."""

    topology: Topology
    configured: ConfiguredTopology
    metadata_hash: int
    has_changed: bool

    @property
    def validated_epoch(self) -> int:
        return self.topology.epoch if self.configured.is_ready else -1


def heartbeat(
    context: StreamsContext,
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    caller: Caller,
    effects: Effects,
    now_ms: int,
) -> HeartbeatResult:
    """A member joins or sends its heartbeat. Raises ApiError, having changed nothing, if it may not."""
    owned = _owned(request)
    member = _find_or_join(context, group, request, owned)
    updated = _updated(member, request, caller)
    if updated != member:
        group.check_metadata(context.settings, context.kept, updated, caller)
        effects.records.append(member_record(group.group_id, updated))
    configuration = _configure(context, group, _topology_after(group, request, effects.records))
    configured = configuration.configured
    _check_owned(owned, configured)
    configs = context.assignment_configs(group.group_id)
    epoch = group.epoch
    if updated != member or configuration.has_changed or configs != group.assignment_configs:
        epoch += 1
        effects.records.append(
            epoch_record(group.group_id, epoch, configuration.metadata_hash, configuration.validated_epoch, configs)
        )
    delay_ms = context.initial_delay_ms(group.group_id) if group.is_empty and not group.is_delayed else 0
    if delay_ms:
        effects.timers.append(Timer((STREAMS_INITIAL_TIMER, group.group_id), now_ms + delay_ms))
    is_delayed = group.is_delayed or delay_ms > 0
    statuses = _stale_topology(group, updated)
    target_epoch, target = group.assignment_epoch, group.targets.get(updated.member_id, NO_TASK_SETS)
    if is_delayed:
        target = NO_TASK_SETS
        statuses.append(_delayed("the configured initial rebalance delay"))
    elif epoch > group.assignment_epoch and not may_assign(context, group, now_ms):
        statuses.append(_delayed("the configured assignment interval"))
    elif epoch > group.assignment_epoch:
        members = {**group.members, updated.member_id: updated}
        targets = update_target(group, members, configured, configs, epoch, effects.records, now_ms)
        target_epoch, target = epoch, targets[updated.member_id]
    updated = _reconciled(group, updated, target_epoch, target, owned, effects, now_ms)
    context.keep_session(group, updated.member_id, effects, now_ms)
    # Soft state comes last, when no error is possible any more.
    group.configured, group.metadata_is_current, group.is_delayed = configured, True, is_delayed
    if request.shutdown_application:
        ask_shutdown(group, updated.member_id)
    response = _response(context, group, request, member, updated, [*statuses, *_problems(group, configured)])
    return HeartbeatResult(response, configured.missing)


def _owned(request: StreamsGroupHeartbeatRequest) -> TaskSets | None:
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return TaskSets(tasks_of(request.active_tasks), tasks_of(request.standby_tasks), tasks_of(request.warmup_tasks))


def _find_or_join(
    context: StreamsContext, group: StreamsGroup, request: StreamsGroupHeartbeatRequest, owned: TaskSets | None
) -> StreamsMember:
    """Raises GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH."""
    epoch = request.member_epoch
    member = group.members.get(request.member_id)
    if epoch == JOIN_EPOCH:
        size_max = context.settings.streams_max_size
        if member is None and len(group.members) >= size_max:
            reason = f"The streams group has reached its maximum capacity of {size_max} members."
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)
        return member or StreamsMember(request.member_id)
    member = group.known_member(request.member_id)
    # It may just have missed the response that raised its epoch.
    missed_answer = epoch == member.previous_member_epoch and owned is not None and owned.is_within(member.assigned)
    if epoch > member.member_epoch or (epoch < member.member_epoch and not missed_answer):
        compared = "greater" if epoch > member.member_epoch else "smaller"
        reason = (
            f"The streams group member has a {compared} member epoch ({epoch}) than the one known by the group"
            f" coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin."
        )
        raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, reason)
    return member


def _updated(member: StreamsMember, request: StreamsGroupHeartbeatRequest, caller: Caller) -> StreamsMember:
    """The member updated by the request; fields that it leaves out stay the same."""
    timeout_ms, tags = request.rebalance_timeout_ms, request.client_tags
    return replace(
        member,
        rack_id=request.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        client_id=caller.client_id,
        client_host=caller.host,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        user_endpoint=member.user_endpoint if request.user_endpoint is None else Endpoint(*request.user_endpoint),
        client_tags=member.client_tags if tags is None else {tag.key: tag.value for tag in tags},
    )


def _topology_after(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, records: list[Record]) -> Topology:
    """The group's topology, which its first member brings; raises INVALID_REQUEST for another one."""
    if request.topology is None:
        if group.topology is None:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The topology of group {group.group_id} is lost.")
        return group.topology
    sent = topology_of(request.topology)
    if group.topology is None:
        records.append(topology_record(group.group_id, sent))
        return sent
    if sent.epoch >= group.topology.epoch and sent != group.topology:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return group.topology


def _configure(context: StreamsContext, group: StreamsGroup, topology: Topology) -> _Configuration:
    """Configure the topology anew if it is new here, or if topics have changed."""
    metadata_hash = group.metadata_hash
    configured = group.configured
    if configured is None or not group.metadata_is_current:
        metadata_hash = context.catalog.metadata_hash(topology.required_topics)
    if configured is None or metadata_hash != group.metadata_hash:
        configured = configure(topology, context.catalog.topics.partition_count)
    validated_epoch = topology.epoch if configured.is_ready else -1
    has_changed = metadata_hash != group.metadata_hash or validated_epoch != group.validated_topology_epoch
    return _Configuration(topology, configured, metadata_hash, has_changed)


def _check_owned(owned: TaskSets | None, configured: ConfiguredTopology) -> None:
    """Raises INVALID_REQUEST for tasks that the topology does not have."""
    if owned is None or not configured.is_ready:
        return
    subtopologies = configured.subtopologies or {}
    for tasks in owned:
        for name, numbers in tasks.items():
            if name not in subtopologies:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Subtopology {name} does not exist in the topology.")
            count = subtopologies[name].task_count
            wrong = [number for number in sorted(numbers) if not 0 <= number < count]
            if wrong:
                reason = (
                    f"Task {wrong[0]} for subtopology {name} is invalid. Number of tasks for this subtopology: {count}"
                )
                raise ApiError(ErrorCode.INVALID_REQUEST, reason)


def _stale_topology(group: StreamsGroup, member: StreamsMember) -> list[Status]:
    if group.topology is None or member.topology_epoch >= group.topology.epoch:
        return []
    detail = (
        f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch"
        f" {group.topology.epoch}."
    )
    return [Status(StatusCode.STALE_TOPOLOGY, detail)]


def _delayed(reason: str) -> Status:
    return Status(StatusCode.ASSIGNMENT_DELAYED, f"Assignment delayed due to {reason}.")


def _problems(group: StreamsGroup, configured: ConfiguredTopology) -> list[Status]:
    found = [] if configured.problem is None else [configured.problem]
    if group.shutdown_member_id is not None:
        detail = (
            f"Streams group member {group.shutdown_member_id} encountered a fatal error and requested a shutdown for"
            " the entire application."
        )
        found.append(Status(StatusCode.SHUTDOWN_APPLICATION, detail))
    return found


def _reconciled(
    group: StreamsGroup,
    member: StreamsMember,
    target_epoch: int,
    target: TaskSets,
    owned: TaskSets | None,
    effects: Effects,
    now_ms: int,
) -> StreamsMember:
    """Take a member a step further, and start its rebalance timeout if it must revoke tasks first."""
    if member.is_reconciled_to(target_epoch):
        return member
    updated = reconcile(member, target_epoch, target, owned, holders_of(group.members.values()))
    if updated == member:
        return member
    assert updated.member_id == member.member_id
    effects.records.append(assignment_record(group.group_id, updated))
    must_revoke = updated.state is MemberState.UNREVOKED_TASKS
    deadline_ms = now_ms + updated.rebalance_timeout_ms if must_revoke else None
    await_revocation(group.group_id, updated.member_id, deadline_ms, effects)
    return updated


def _response(
    context: StreamsContext,
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    former: StreamsMember,
    member: StreamsMember,
    statuses: Sequence[Status],
) -> StreamsGroupHeartbeatResponse:
    response = StreamsGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=context.heartbeat_interval_ms(group.group_id),
        status=[wire.Status(*status) for status in statuses],
    )
    if request.member_epoch == JOIN_EPOCH or member.assigned != former.assigned:
        active, standby, warmup = ([TaskIds(*row) for row in rows_of(tasks)] for tasks in member.assigned)
        response = response._replace(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
        if member.user_endpoint is not None:
            group.endpoint_epoch += 1
    endpoints: Sequence[EndpointToPartitions] | None = None
    if group.endpoint_epoch != request.endpoint_information_epoch and group.configured is not None:
        others = [other for other in group.members.values() if other.member_id != member.member_id]
        endpoints = endpoints_of([*others, member], group.configured, context.catalog.topics)
    return response._replace(endpoint_information_epoch=group.endpoint_epoch, partitions_by_user_endpoint=endpoints)


def ask_shutdown(group: StreamsGroup, member_id: str) -> None:
    """Tell all members, old and new, to shut down, until the group is empty."""
    if group.shutdown_member_id is None:
        group.shutdown_member_id = member_id


def leave(group: StreamsGroup, member_id: str, effects: Effects) -> StreamsGroupHeartbeatResponse:
    """A member leaves, or is removed; the others find a new target at their next heartbeat."""
    effects.records += member_tombstones(group.group_id, group.known_member(member_id).member_id)
    configs: Mapping[str, str] = group.assignment_configs
    effects.records.append(
        epoch_record(group.group_id, group.epoch + 1, group.metadata_hash, group.validated_topology_epoch, configs)
    )
    cancel_timers(group.group_id, member_id, effects)
    return StreamsGroupHeartbeatResponse(member_id=member_id, member_epoch=LEAVE_EPOCH)
