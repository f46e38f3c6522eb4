"""Versions 0-5. Classic groups: the leader sends the assignment, every member gets its own."""

from __future__ import annotations

from penstock.api.declaration import Api
from penstock.api.groups.group_requests import answering_members
from penstock.core.group.shard import GroupShard
from penstock.wire.apis import ApiKey
from penstock.wire.messages.sync_group import SyncGroupResponse

API = Api(ApiKey.SYNC_GROUP, (0, 5), on_broker=answering_members(GroupShard.sync_group, SyncGroupResponse))
