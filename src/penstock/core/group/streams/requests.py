"""Which heartbeats are refused whatever the group: what Kafka 4.3 does not offer yet, and what makes no sense."""

from __future__ import annotations

from penstock.core.group.group import refuse_if
from penstock.core.group.modern.members import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from penstock.core.group.streams.topology import check_topology
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest


def check_request(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY for a request that is invalid for every group."""
    _check_features(request)
    epoch = request.member_epoch
    refuse_if(not request.member_id.strip(), "MemberId can't be empty.")
    refuse_if(not request.group_id.strip(), "GroupId can't be empty.")
    refuse_if(request.rack_id is not None and not request.rack_id.strip(), "RackId can't be empty.")
    owned = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if epoch == JOIN_EPOCH:
        refuse_if(request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request.")
        for name, tasks in zip(("ActiveTasks", "StandbyTasks", "WarmupTasks"), owned, strict=True):
            refuse_if(bool(tasks), f"{name} must be empty when (re-)joining.")
        refuse_if(request.topology is None, "Topology must be non-null when (re-)joining.")
    refuse_if(epoch == STATIC_LEAVE_EPOCH, "InstanceId can't be null.")
    refuse_if(
        epoch < STATIC_LEAVE_EPOCH,
        f"MemberEpoch is {epoch}, but must be greater than or equal to {STATIC_LEAVE_EPOCH}.",
    )
    some = any(tasks is not None for tasks in owned)
    refuse_if(some and any(tasks is None for tasks in owned), "If one task-type is non-null, all must be non-null.")
    refuse_if(epoch != JOIN_EPOCH and request.topology is not None, "Topology can only be provided when (re-)joining.")
    if request.topology is not None:
        check_topology(request.topology)


def _check_features(request: StreamsGroupHeartbeatRequest) -> None:
    refuse_if(request.instance_id is not None, "Static membership is not yet supported.")
    refuse_if(request.task_offsets is not None, "TaskOffsets are not supported yet.")
    refuse_if(request.task_end_offsets is not None, "TaskEndOffsets are not supported yet.")
    refuse_if(bool(request.warmup_tasks), "WarmupTasks are not supported yet.")
    patterns = request.topology is not None and any(row.source_topic_regex for row in request.topology.subtopologies)
    refuse_if(patterns, "Regular expressions for source topics are not supported yet.")
