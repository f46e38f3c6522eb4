"""What the shard asks of whoever runs the groups of KIP-848."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from penstock.core.group.contract import Caller, Effects, TimerKey, Token
from penstock.core.group.group import Group
from penstock.wire.messages.consumer_group_describe import DescribedGroup
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.sync_group import SyncGroupRequest


class ConsumerSide(Protocol):
    """Requests, records and timers of consumer groups. `group` is always one of them, not a classic one."""

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, token: Token, now_ms: int
    ) -> Effects: ...

    def join(self, group: Group, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int) -> Effects: ...

    def sync(self, group: Group, request: SyncGroupRequest, caller: Caller, token: Token, now_ms: int) -> Effects: ...

    def classic_heartbeat(
        self, group: Group, request: HeartbeatRequest, caller: Caller, token: Token, now_ms: int
    ) -> Effects: ...

    def leave(self, group: Group, request: LeaveGroupRequest, caller: Caller, token: Token, now_ms: int) -> Effects: ...

    def describe(self, group: Group) -> DescribedGroup: ...

    def replay(self, key: Any, value: Any) -> None: ...

    def loaded(self, now_ms: int) -> Effects: ...

    def unloaded(self) -> Effects: ...

    def timer_fired(self, key: TimerKey, now_ms: int) -> Effects: ...

    def topics_changed(self, changed: Collection[str], deleted: Collection[str], now_ms: int) -> Effects: ...
