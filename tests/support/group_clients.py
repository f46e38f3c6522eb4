"""Members of classic groups for tests: requests with sensible defaults, and a group brought to where a test starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core.group.classic.group import ClassicGroup
from penstock.wire.codec import encode
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support.worlds.group_world import GroupWorld

GROUP = "g"


def subscription(*topics: str) -> bytes:
    """What a consumer that reads these topics joins with."""
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=topics), 0)


def join_request(
    member_id: str = "",
    *,
    instance_id: str | None = None,
    protocols: Sequence[str] = ("range",),
    metadata: bytes | None = None,
    protocol_type: str = "consumer",
    **fields: Any,
) -> JoinGroupRequest:
    """A JoinGroup of a consumer of topic t."""
    rows = [JoinGroupRequestProtocol(name, subscription("t") if metadata is None else metadata) for name in protocols]
    request = JoinGroupRequest(GROUP, 10_000, 60_000, member_id, instance_id, protocol_type, rows)
    return request._replace(**fields)


def sync_request(
    member_id: str, generation: int, shares: dict[str, bytes] | None = None, instance_id: str | None = None
) -> SyncGroupRequest:
    """A SyncGroup; the leader's has everybody's share."""
    rows = [SyncGroupRequestAssignment(*row) for row in (shares or {}).items()]
    return SyncGroupRequest(GROUP, generation, member_id, instance_id, assignments=rows)


def commit_request(
    offsets: dict[tuple[str, int], int],
    member_id: str = "",
    generation: int = -1,
    metadata: str | None = "",
    leader_epoch: int = -1,
    **fields: Any,
) -> OffsetCommitRequest:
    """An OffsetCommit of these partitions."""
    rows = [
        OffsetCommitRequestTopic(
            topic, partitions=[OffsetCommitRequestPartition(partition, offset, leader_epoch, metadata)]
        )
        for (topic, partition), offset in offsets.items()
    ]
    return OffsetCommitRequest(GROUP, generation, member_id, topics=rows)._replace(**fields)


def live_group(world: GroupWorld) -> ClassicGroup:
    """The group, as its coordinator has it."""
    found = world.shard._groups[GROUP]
    assert isinstance(found, ClassicGroup)
    return found


def joined_members(world: GroupWorld, *requests: JoinGroupRequest) -> list[str]:
    """Member ids of a group whose members have just been through their first join phase; the first one leads."""
    tokens = [world.ask("join_group", request, 3) for request in requests]
    world.advance(world.settings.initial_rebalance_delay_ms * 2)
    return [world.responses.pop(token).member_id for token in tokens]


def stable_members(world: GroupWorld, *requests: JoinGroupRequest) -> list[str]:
    """Member ids of a stable group; each member's share is its number."""
    members = joined_members(world, *requests)
    generation = live_group(world).generation
    shares = {member_id: b"%d" % number for number, member_id in enumerate(members)}
    for member_id, request in zip(members, requests, strict=True):
        leads = member_id == live_group(world).leader
        sync = sync_request(member_id, generation, shares if leads else None, request.group_instance_id)
        world.responses.pop(world.ask("sync_group", sync))
    return members
