"""Requests about share groups, as probes. No group has members or state, so that none of them changes anything."""

from __future__ import annotations

from typing import Any

from access_answers import digest
from access_probe import ABSENT, Probe
from access_rights import HIDDEN, SEEN

from penstock.model.ids import ZERO_UUID
from penstock.wire.messages import alter_share_group_offsets as altering
from penstock.wire.messages import delete_share_group_offsets as deleting
from penstock.wire.messages import describe_share_group_offsets as describing
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

GROUP = f"{SEEN}-share"


def _beat(*topics: str) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(GROUP, "nobody", 7, None, topics)


def _without_ids(answer: Any) -> Any:
    """Kafka tells the ids of topics that it refuses, and so that they exist; we don't."""
    return digest(answer._replace(responses=[row._replace(topic_id=ZERO_UUID) for row in answer.responses]))


SHARE_GROUPS = [
    Probe("share group heartbeat", _beat(SEEN)),
    Probe("share group heartbeat for hidden", _beat(SEEN, HIDDEN)),
    Probe("share group describe", ShareGroupDescribeRequest([GROUP, HIDDEN], True)),
    Probe(
        "describe share group offsets",
        describing.DescribeShareGroupOffsetsRequest(
            [
                describing.DescribeShareGroupOffsetsRequestGroup(
                    GROUP,
                    [describing.DescribeShareGroupOffsetsRequestTopic(name, [0]) for name in (HIDDEN, ABSENT)],
                ),
                describing.DescribeShareGroupOffsetsRequestGroup(f"{GROUP}-whole", None),
                describing.DescribeShareGroupOffsetsRequestGroup(HIDDEN, None),
            ]
        ),
    ),
    Probe(
        "alter share group offsets",
        altering.AlterShareGroupOffsetsRequest(
            GROUP,
            [
                altering.AlterShareGroupOffsetsRequestTopic(
                    name, [altering.AlterShareGroupOffsetsRequestPartition(0, 1)]
                )
                for name in (HIDDEN, ABSENT)
            ],
        ),
        told=_without_ids,
    ),
    Probe(
        "delete share group offsets",
        deleting.DeleteShareGroupOffsetsRequest(
            GROUP, [deleting.DeleteShareGroupOffsetsRequestTopic(name) for name in (HIDDEN, ABSENT)]
        ),
    ),
]
