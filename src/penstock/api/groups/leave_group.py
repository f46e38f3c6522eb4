"""Versions 0-5. Classic groups: KIP-345 many members at once, KIP-800 reasons."""

from __future__ import annotations

from penstock.api.declaration import Api
from penstock.api.groups.group_requests import answering_members
from penstock.core.group.shard import GroupShard
from penstock.wire.apis import ApiKey
from penstock.wire.messages.leave_group import LeaveGroupResponse

API = Api(ApiKey.LEAVE_GROUP, (0, 5), on_broker=answering_members(GroupShard.leave_group, LeaveGroupResponse))
