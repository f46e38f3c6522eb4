"""The consumer groups of a shard: finds the group that an event is about, and turns errors into responses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping

from penstock.core.group.classic.group import ClassicGroup
from penstock.core.group.classic.rebalance import ClassicRebalance, join_refused
from penstock.core.group.consumer import classic_members as consumer_classic
from penstock.core.group.consumer import heartbeat as consumer_heartbeat
from penstock.core.group.consumer.context import (
    REBALANCE_TIMER,
    ConsumerContext,
    keep_session,
)
from penstock.core.group.consumer.describe import described
from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.consumer.leave import remove_members
from penstock.core.group.consumer.members import ConsumerMember, MemberState
from penstock.core.group.consumer.update import await_revocation
from penstock.core.group.contract import Caller, Effects, GroupSettings, Reply, TimerKey, Token
from penstock.core.group.group import Group, Random, find_group
from penstock.core.group.migration import DOWNGRADED_TIMER, downgraded, release, upgrade
from penstock.core.group.modern.members import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from penstock.core.group.subscription.topics import TopicCatalog
from penstock.core.kept_bytes import KeptBytes
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.consumer_group_describe import DescribedGroup
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class ConsumerGroups:
    """Serves the groups among `groups` that are consumer groups; the shard owns the map."""

    def __init__(
        self,
        settings: GroupSettings,
        catalog: TopicCatalog,
        random: Random,
        configs: Callable[[str], Mapping[str, str]],
        groups: MutableMapping[str, Group],
        rebalance: ClassicRebalance,
        kept: KeptBytes,
    ) -> None:
        self._context = ConsumerContext(settings, catalog, random, configs, kept)
        self._groups = groups
        self._rebalance = rebalance

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, token: Token, now_ms: int) -> Effects:
        """A member joins, sends its heartbeat, or leaves."""
        effects = Effects()
        try:
            consumer_heartbeat.check_request(request, caller.api_version, self._context.settings.consumer_assignors)
            if request.member_epoch < JOIN_EPOCH:
                response = self._leave(request, effects, now_ms)
            else:
                response = self._heartbeat(request, caller, effects, now_ms)
        except ApiError as error:
            effects = Effects()
            response = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        effects.replies.append(Reply(token, response))
        return effects

    def _heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, effects: Effects, now_ms: int
    ) -> ConsumerGroupHeartbeatResponse:
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return consumer_heartbeat.heartbeat(self._context, group, request, caller, effects, now_ms)
        if request.member_epoch != JOIN_EPOCH:
            # The whole group may have been lost. Clients only rejoin after this error; GROUP_ID_NOT_FOUND, which
            # KIP-848 does not list here, is fatal to them.
            reason = f"Member {request.member_id} is not a member of the unknown group {request.group_id}."
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, reason)
        if group is None:
            founded = ConsumerGroup(request.group_id)
            return consumer_heartbeat.heartbeat(self._context, founded, request, caller, effects, now_ms)
        if not isinstance(group, ClassicGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        if group.is_empty:
            effects.records += group.tombstones()
            moved = ConsumerGroup(request.group_id)
        else:
            moved = upgrade(self._context, group, effects, now_ms)
        response = consumer_heartbeat.heartbeat(self._context, moved, request, caller, effects, now_ms)
        release(group, self._rebalance, effects)
        return response

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, effects: Effects, now_ms: int
    ) -> ConsumerGroupHeartbeatResponse:
        group = self._groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no consumer group {request.group_id}.")
        member = consumer_heartbeat.leaving_member(group, request)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            return consumer_heartbeat.leave_for_a_while(group, member, effects)
        remove_members(self._context, group, [member], effects, now_ms)
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int
    ) -> Effects:
        """A classic member joins a consumer group; always answered at once."""
        effects = Effects()
        try:
            response = consumer_classic.join(self._context, group, request, caller, effects, now_ms)
        except ApiError as error:
            return Effects(replies=[Reply(token, join_refused(error.code, request.member_id))])
        effects.replies.append(Reply(token, response))
        return effects

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, token: Token, now_ms: int) -> Effects:
        """A classic member requests its assignment; always answered at once."""
        effects = Effects()
        try:
            response = consumer_classic.sync(self._context, group, request, effects, now_ms)
        except ApiError as error:
            response = SyncGroupResponse(error_code=error.code)
        effects.replies.append(Reply(token, response))
        return effects

    def classic_heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, token: Token, now_ms: int) -> Effects:
        """A classic member sends its heartbeat."""
        effects = Effects()
        try:
            error = consumer_classic.heartbeat(group, request, effects, now_ms)
        except ApiError as refused:
            error = refused.code
        effects.replies.append(Reply(token, HeartbeatResponse(error_code=error)))
        return effects

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest, caller: Caller, token: Token, now_ms: int
    ) -> Effects:
        """Classic members leave, or an administrator removes members."""
        effects = Effects()
        response = consumer_classic.leave(self._context, group, request, caller, effects, now_ms)
        effects.replies.append(Reply(token, response))
        return effects

    def describe(self, group_id: str) -> DescribedGroup:
        """The group with its members, as ConsumerGroupDescribe shows it; raises GROUP_ID_NOT_FOUND."""
        return described(self._context, find_group(self._groups, ConsumerGroup, group_id))

    def loaded(self, now_ms: int) -> Effects:
        """All records are replayed: session timeouts start now, and the timers of members that must revoke."""
        effects = Effects()
        for group in self._groups.values():
            if not isinstance(group, ConsumerGroup):
                continue
            timeout_ms = self._context.session_timeout_ms(group.group_id)
            for member in group.members.values():
                if member.classic is not None:
                    # One that must rejoin learns that from its next heartbeat, and has its time from then on.
                    keep_session(group, member.member_id, member.classic.session_timeout_ms, effects, now_ms)
                    continue
                keep_session(group, member.member_id, timeout_ms, effects, now_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    await_revocation(group, member, effects, now_ms)
        return effects

    def timer_fired(self, key: TimerKey, now_ms: int) -> Effects:
        """A member's timer fired, or a group became a classic one; timers of members that have left are ignored."""
        effects = Effects()
        kind, group_id, member_id = key
        group = self._groups.get(group_id)
        if kind == DOWNGRADED_TIMER:
            if isinstance(group, ClassicGroup):
                downgraded(group, self._rebalance, effects, now_ms)
            return effects
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if isinstance(group, ConsumerGroup) and member is not None and _is_over(kind, member):
            remove_members(self._context, group, [member], effects, now_ms)
        return effects

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics were created, changed or deleted: subscribed groups check them again at their next heartbeat."""
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup) and any(group.is_subscribed_to(name) for name in names):
                group.metadata_is_current = False


def _is_over(kind: str, member: ConsumerMember) -> bool:
    if kind == REBALANCE_TIMER:
        # A static member that left temporarily has revoked what it had to; only its session timeout applies.
        return member.state is MemberState.UNREVOKED_PARTITIONS and member.member_epoch >= 0
    return True
