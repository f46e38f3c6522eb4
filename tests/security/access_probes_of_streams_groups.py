"""Requests about streams groups, as probes. No group comes to be: a topology in a later heartbeat is refused."""

from __future__ import annotations

from access_probe import ABSENT, Probe
from access_rights import HIDDEN, SEEN

from penstock.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from penstock.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)

GROUP = f"{SEEN}-streams"


def _beat(*rows: Subtopology, group: str = GROUP) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(group, "nobody", 7, topology=Topology(0, rows) if rows else None)


STREAMS_GROUPS = [
    Probe("streams group heartbeat", _beat()),
    Probe("streams group heartbeat of hidden", _beat(group=HIDDEN)),
    Probe("streams group heartbeat with sources", _beat(Subtopology("0", [SEEN, ABSENT]))),
    Probe("streams group heartbeat with a hidden source", _beat(Subtopology("0", [SEEN]), Subtopology("1", [HIDDEN]))),
    Probe("streams group heartbeat with a hidden sink", _beat(Subtopology("0", [SEEN], [], [], [HIDDEN]))),
    Probe(
        "streams group heartbeat with a hidden repartition topic",
        _beat(Subtopology("0", [SEEN], repartition_source_topics=[TopicInfo(HIDDEN)])),
    ),
    Probe(
        "streams group heartbeat with a hidden changelog",
        _beat(Subtopology("0", [SEEN], state_changelog_topics=[TopicInfo(HIDDEN)])),
    ),
    Probe("streams group heartbeat with offsets", _beat(Subtopology("0", ["__consumer_offsets", HIDDEN]))),
    Probe("streams group describe", StreamsGroupDescribeRequest([GROUP, HIDDEN], True)),
]
