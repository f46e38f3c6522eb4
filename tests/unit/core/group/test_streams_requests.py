"""Heartbeats of streams groups that are invalid for every group."""

from __future__ import annotations

import pytest

from penstock.core.group.streams.requests import check_request
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    Topology,
)

JOINING = StreamsGroupHeartbeatRequest(
    "g",
    "m",
    0,
    rebalance_timeout_ms=1_000,
    topology=Topology(0, [Subtopology("0", ["t"])]),
    active_tasks=[],
    standby_tasks=[],
    warmup_tasks=[],
)
LATER = StreamsGroupHeartbeatRequest("g", "m", 3)
TASKS = [TaskIds("0", [0])]


@pytest.mark.parametrize("request_", [JOINING, LATER, LATER._replace(member_epoch=-1)])
def test_what_members_send_is_valid(request_: StreamsGroupHeartbeatRequest) -> None:
    check_request(request_)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (JOINING._replace(member_id=" "), "MemberId can't be empty"),
        (JOINING._replace(group_id=" "), "GroupId can't be empty"),
        (JOINING._replace(rack_id=""), "RackId can't be empty"),
        (JOINING._replace(rebalance_timeout_ms=-1), "RebalanceTimeoutMs must be provided"),
        (JOINING._replace(active_tasks=TASKS), "ActiveTasks must be empty"),
        (JOINING._replace(standby_tasks=TASKS), "StandbyTasks must be empty"),
        (JOINING._replace(topology=None), "Topology must be non-null"),
        (JOINING._replace(active_tasks=None), "all must be non-null"),
        (LATER._replace(member_epoch=-2), "InstanceId can't be null"),
        (LATER._replace(member_epoch=-3), "MemberEpoch is -3"),
        (LATER._replace(active_tasks=TASKS), "all must be non-null"),
        (LATER._replace(topology=JOINING.topology), "Topology can only be provided"),
        (LATER._replace(instance_id="i"), "Static membership"),
        (LATER._replace(task_offsets=[TaskOffset("0", 0, 1)]), "TaskOffsets"),
        (LATER._replace(task_end_offsets=[TaskOffset("0", 0, 1)]), "TaskEndOffsets"),
        (LATER._replace(active_tasks=[], standby_tasks=[], warmup_tasks=TASKS), "WarmupTasks"),
    ],
)
def test_invalid_heartbeats_are_refused(request_: StreamsGroupHeartbeatRequest, why: str) -> None:
    with pytest.raises(ApiError, match=why) as refused:
        check_request(request_)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
