"""Versions 0-4. Classic groups: keeps a member's session alive and tells it of a rebalance."""

from __future__ import annotations

from penstock.api.declaration import Api
from penstock.api.groups.group_requests import answering_members
from penstock.core.group.shard import GroupShard
from penstock.wire.apis import ApiKey
from penstock.wire.messages.heartbeat import HeartbeatResponse

API = Api(ApiKey.HEARTBEAT, (0, 4), on_broker=answering_members(GroupShard.heartbeat, HeartbeatResponse))
