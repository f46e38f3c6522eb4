"""The time that a new streams group gives its members to gather."""

from __future__ import annotations

from penstock.core.group.contract import GroupSettings
from penstock.core.group.streams.context import STREAMS_INITIAL_TIMER
from penstock.model.errors import ErrorCode
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from support.worlds.consumer_world import GROUP, ConsumerWorld

TOPOLOGY = Topology(0, [Subtopology("0", ["t"])])


def test_a_group_that_is_deleted_before_its_members_have_gathered_leaves_no_timer() -> None:
    world = ConsumerWorld(GroupSettings(streams_initial_rebalance_delay_ms=3_000), 0, t=1)
    joining = StreamsGroupHeartbeatRequest(
        GROUP, "m", 0, rebalance_timeout_ms=1_000, topology=TOPOLOGY, active_tasks=[], standby_tasks=[], warmup_tasks=[]
    )
    assert world.answer("streams.heartbeat", joining, 0).response.error_code == ErrorCode.NONE
    world.answer("streams.heartbeat", StreamsGroupHeartbeatRequest(GROUP, "m", -1), 0)
    assert (STREAMS_INITIAL_TIMER, GROUP) in world.timers
    assert world.delete_group(GROUP) is ErrorCode.NONE
    assert world.timers == {}
