"""The streams groups of a shard: finds the group that an event is about, and turns errors into responses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping

from penstock.core.group.classic.group import ClassicGroup
from penstock.core.group.contract import Caller, Effects, GroupSettings, Reply, TimerKey, Token
from penstock.core.group.group import Group, find_group
from penstock.core.group.modern.members import JOIN_EPOCH, LEAVE_EPOCH
from penstock.core.group.streams.context import (
    STREAMS_INITIAL_TIMER,
    STREAMS_REBALANCE_TIMER,
    StreamsContext,
    await_revocation,
)
from penstock.core.group.streams.describe import described
from penstock.core.group.streams.group import StreamsGroup
from penstock.core.group.streams.heartbeat import HeartbeatResult, ask_shutdown, heartbeat, leave
from penstock.core.group.streams.members import MemberState
from penstock.core.group.streams.requests import check_request
from penstock.core.group.streams.target import may_assign, update_target
from penstock.core.group.subscription.topics import TopicCatalog
from penstock.core.kept_bytes import KeptBytes
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.streams_group_describe import DescribedGroup
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse


class StreamsGroups:
    """Serves the groups among `groups` that are streams groups; the shard owns the map."""

    def __init__(
        self,
        settings: GroupSettings,
        catalog: TopicCatalog,
        configs: Callable[[str], Mapping[str, str]],
        groups: MutableMapping[str, Group],
        kept: KeptBytes,
    ) -> None:
        self._context = StreamsContext(settings, catalog, configs, kept)
        self._groups = groups

    def heartbeat(self, request: StreamsGroupHeartbeatRequest, caller: Caller, token: Token, now_ms: int) -> Effects:
        """A member joins, sends its heartbeat, or leaves. The reply is a HeartbeatResult."""
        effects = Effects()
        try:
            check_request(request)
            if request.member_epoch == LEAVE_EPOCH:
                group = self._find(request.group_id)
                result = HeartbeatResult(leave(group, request.member_id, effects))
                if request.shutdown_application:
                    ask_shutdown(group, request.member_id)
            else:
                founded = self._found(request, effects) if request.member_epoch == JOIN_EPOCH else None
                group = founded or self._find(request.group_id)
                result = heartbeat(self._context, group, request, caller, effects, now_ms)
                self._groups[request.group_id] = group
        except ApiError as error:
            effects = Effects()
            result = HeartbeatResult(StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message))
        effects.replies.append(Reply(token, result))
        return effects

    def _found(self, request: StreamsGroupHeartbeatRequest, effects: Effects) -> StreamsGroup | None:
        """A new group, where there is none or only an empty classic one."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup) and group.is_empty:
            effects.records += group.tombstones()
        elif group is not None:
            return None
        return StreamsGroup(request.group_id)

    def _find(self, group_id: str) -> StreamsGroup:
        """The streams group of that name; raises GROUP_ID_NOT_FOUND."""
        if group_id not in self._groups:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        return find_group(self._groups, StreamsGroup, group_id)

    def describe(self, group_id: str) -> DescribedGroup:
        """The group with its members, as StreamsGroupDescribe shows it; raises GROUP_ID_NOT_FOUND."""
        return described(find_group(self._groups, StreamsGroup, group_id))

    def loaded(self, now_ms: int) -> Effects:
        """All records are replayed: session timeouts start now, and the timers of members that must revoke."""
        effects = Effects()
        for group in self._groups.values():
            if not isinstance(group, StreamsGroup):
                continue
            for member in group.members.values():
                self._context.keep_session(group, member.member_id, effects, now_ms)
                if member.state is MemberState.UNREVOKED_TASKS:
                    deadline_ms = now_ms + member.rebalance_timeout_ms
                    await_revocation(group.group_id, member.member_id, deadline_ms, effects)
        return effects

    def timer_fired(self, key: TimerKey, now_ms: int) -> Effects:
        """A member's time is over, or that of a new group to gather members; what is gone is ignored."""
        effects = Effects()
        group = self._groups.get(key[1])
        if not isinstance(group, StreamsGroup):
            return effects
        if key[0] == STREAMS_INITIAL_TIMER:
            self._assign_first(group, effects, now_ms)
            return effects
        member = group.members.get(key[2])
        has_revoked = key[0] == STREAMS_REBALANCE_TIMER and (
            member is not None and member.state is not MemberState.UNREVOKED_TASKS
        )
        if member is not None and not has_revoked:
            leave(group, member.member_id, effects)
        return effects

    def _assign_first(self, group: StreamsGroup, effects: Effects, now_ms: int) -> None:
        group.is_delayed = False
        if group.is_empty or group.configured is None or group.epoch <= group.assignment_epoch:
            return
        if may_assign(self._context, group, now_ms):
            update_target(
                group,
                group.members,
                group.configured,
                group.assignment_configs,
                group.epoch,
                effects.records,
                now_ms,
            )

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics were created, changed or deleted: groups that need them look again at their next heartbeat."""
        for group in self._groups.values():
            if isinstance(group, StreamsGroup) and group.needs(names):
                group.metadata_is_current = False
