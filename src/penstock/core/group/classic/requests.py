"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup for classic groups.

KIP-394 (member ids are handed out first), KIP-345 (static membership), KIP-814 (a static leader that restarts may skip
the assignment), KIP-800 (reasons, which are informational only).
"""

from __future__ import annotations

from penstock.core.group.classic.group import ClassicGroup, ClassicState
from penstock.core.group.classic.members import ClassicMember
from penstock.core.group.classic.rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    SYNC_TIMER,
    ClassicRebalance,
    join_refused,
    joined,
    session_key,
)
from penstock.core.group.contract import Caller, Effects, GroupSettings, Reply, Timer, Token
from penstock.core.group.group import Random, random_uuid
from penstock.model.errors import ErrorCode
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# From these JoinGroup versions on a dynamic member needs an id first, and a leader may skip the assignment.
_MEMBER_ID_REQUIRED_VERSION = 4
_SKIP_ASSIGNMENT_VERSION = 9

_HEARTBEAT_ACCEPTED = HeartbeatResponse()
_HEARTBEAT_REBALANCE = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


class ClassicRequests:
    """Serves members of classic groups. The shard has checked that the group is a classic one."""

    __slots__ = ("_max_size", "_random", "_rebalance")

    def __init__(self, settings: GroupSettings, random: Random, rebalance: ClassicRebalance) -> None:
        self._max_size = settings.max_size
        self._random = random
        self._rebalance = rebalance

    def join(
        self, group: ClassicGroup, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int
    ) -> Effects:
        """Add a member, or let one rejoin; answered when the rebalance this causes has completed its join phase."""
        effects = Effects()
        member_id = request.member_id
        if not self._has_room(group, member_id):
            if member_id:
                self._rebalance.drop_member(group, member_id, effects)
                self._rebalance.complete_if_joined(group, effects, now_ms)
            effects.replies.append(Reply(token, join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "")))
        elif not group.supports(request.protocol_type, request.protocols):
            effects.replies.append(Reply(token, join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)))
        elif member_id:
            self._join_known(group, request, caller, token, effects, now_ms)
        elif request.group_instance_id is not None:
            self._join_static(group, request, caller, token, effects, now_ms)
        elif caller.api_version >= _MEMBER_ID_REQUIRED_VERSION:
            new_id = f"{caller.client_id}-{random_uuid(self._random)}"
            group.expect(new_id)
            effects.timers.append(Timer(session_key(group.group_id, new_id), now_ms + request.session_timeout_ms))
            effects.replies.append(Reply(token, join_refused(ErrorCode.MEMBER_ID_REQUIRED, new_id)))
        else:
            new_id = f"{caller.client_id}-{random_uuid(self._random)}"
            self._add(group, new_id, request, caller, token, effects, now_ms)
        return effects

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        if group.state is ClassicState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is ClassicState.PREPARING_REBALANCE:
            if member is not None and member.join_token is not None:
                return True
            return group.awaiting_join_count < self._max_size
        return member is not None or len(group.members) < self._max_size

    def _join_known(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        token: Token,
        effects: Effects,
        now_ms: int,
    ) -> None:
        member_id = request.member_id
        if member_id in group.pending_members:
            if request.group_instance_id is not None:
                # Static members get no id in advance, so this id belongs to another member.
                effects.replies.append(Reply(token, join_refused(ErrorCode.UNKNOWN_SERVER_ERROR, member_id)))
                return
            self._add(group, member_id, request, caller, token, effects, now_ms)
            return
        error = group.check_member(member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            effects.replies.append(Reply(token, join_refused(error, member_id)))
            return
        member = group.members[member_id]
        # A member that repeats its JoinGroup unchanged may only have missed the answer.
        unchanged = member.protocols == tuple(request.protocols)
        missed_answer = unchanged and (
            group.state is ClassicState.COMPLETING_REBALANCE
            or (group.state is ClassicState.STABLE and group.leader != member_id)
        )
        if missed_answer:
            effects.replies.append(Reply(token, joined(group, member_id)))
            return
        group.update(member, request.protocols, _rebalance_timeout_ms(request), request.session_timeout_ms)
        self._rebalance.park_join(group, member, token, effects)
        self._rebalance.prepare_or_complete(group, effects, now_ms)

    def _add(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        caller: Caller,
        token: Token,
        effects: Effects,
        now_ms: int,
    ) -> None:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.host,
            _rebalance_timeout_ms(request),
            request.session_timeout_ms,
            request.protocols,
        )
        member.is_new = True
        if group.initial_delay_ms is not None:
            group.member_joined_initially = True
        group.add(member, request.protocol_type)
        self._rebalance.park_join(group, member, token, effects)
        # The id may have been pending, with a timer of its own, which this one replaces.
        self._rebalance.keep_session(group, member, effects, now_ms, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.prepare_or_complete(group, effects, now_ms)

    def _join_static(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        token: Token,
        effects: Effects,
        now_ms: int,
    ) -> None:
        """A static instance starts: it is new, or it replaces the member it was before, which is fenced."""
        instance_id = request.group_instance_id
        assert instance_id is not None
        new_id = f"{instance_id}-{random_uuid(self._random)}"
        old_id = group.static_members.get(instance_id)
        if old_id is None:
            self._add(group, new_id, request, caller, token, effects, now_ms)
            return
        former_leader = group.leader
        self._fence(group, group.members[old_id], effects)
        assert old_id in group.members, "a static instance is one of the members"
        assert not group.members[old_id].has_parked_request, "its requests are answered before it is replaced"
        member = group.replace_static(instance_id, new_id)
        self._rebalance.keep_session(group, member, effects, now_ms)
        group.update(member, request.protocols, _rebalance_timeout_ms(request), request.session_timeout_ms)
        if group.state is ClassicState.STABLE and group.select_protocol() == group.protocol_name:
            # The assignment is still valid, so the other members need not rebalance.
            effects.records.append(group.record())
            effects.replies.append(Reply(token, self._rejoined(group, new_id, former_leader, caller.api_version)))
            return
        self._rebalance.park_join(group, member, token, effects)
        self._rebalance.prepare_or_complete(group, effects, now_ms)

    def _fence(self, group: ClassicGroup, member: ClassicMember, effects: Effects) -> None:
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._rebalance.answer_join(group, member, join_refused(fenced, member.member_id), effects)
        self._rebalance.answer_sync(member, SyncGroupResponse(error_code=fenced), effects)
        effects.timers.append(Timer(session_key(group.group_id, member.member_id), None))

    def _rejoined(
        self, group: ClassicGroup, member_id: str, former_leader: str | None, api_version: int
    ) -> JoinGroupResponse:
        if api_version >= _SKIP_ASSIGNMENT_VERSION:
            return joined(group, member_id)._replace(skip_assignment=group.leader == member_id)
        # Older clients would assign again as leaders, so they get the former leader's id, which no member has now.
        return joined(group, member_id)._replace(leader=former_leader or "", members=())

    def sync(self, group: ClassicGroup, request: SyncGroupRequest, token: Token, now_ms: int) -> Effects:
        """Give a member its assignment; answered when the leader has sent it."""
        effects = Effects()
        member_id = request.member_id
        error = self._check_sync(group, request)
        if error is not ErrorCode.NONE:
            effects.replies.append(Reply(token, SyncGroupResponse(error_code=error)))
            return effects
        self._synced(group, member_id, effects)
        member = group.members[member_id]
        if group.state is ClassicState.STABLE:
            # The member is alive: after a failover it may learn its generation before its first heartbeat.
            self._rebalance.keep_session(group, member, effects, now_ms)
            effects.replies.append(Reply(token, _assigned(group, member.assignment)))
            return effects
        over = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalance.answer_sync(member, over, effects)
        member.sync_token = token
        if member_id == group.leader:
            self._assign(group, request, effects, now_ms)
        return effects

    def _check_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
        if group.is_empty:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, group.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.protocol_name is not None and request.protocol_name not in (None, group.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is ClassicState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _synced(self, group: ClassicGroup, member_id: str, effects: Effects) -> None:
        if member_id not in group.pending_sync:
            return
        del group.pending_sync[member_id]
        if not group.pending_sync:
            effects.timers.append(Timer((SYNC_TIMER, group.group_id), None))

    def _assign(self, group: ClassicGroup, request: SyncGroupRequest, effects: Effects, now_ms: int) -> None:
        """Record the leader's assignment and answer the waiting members; the record makes the group stable."""
        assert group.leader == request.member_id, "only the leader assigns"
        assignments = {given.member_id: bytes(given.assignment) for given in request.assignments}
        effects.records.append(group.record(assignments))
        for member in group.members.values():
            response = _assigned(group, assignments.get(member.member_id, b""))
            if self._rebalance.answer_sync(member, response, effects):
                self._rebalance.keep_session(group, member, effects, now_ms)

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest, token: Token, now_ms: int) -> Effects:
        """Extend a member's session, and tell it when it must rejoin."""
        member_id = request.member_id
        member = group.members.get(member_id)
        if member is None or request.group_instance_id is not None:
            error = group.check_member(member_id, request.group_instance_id)
            if error is not ErrorCode.NONE:
                return Effects(replies=[Reply(token, HeartbeatResponse(error_code=error))])
            assert member is not None
        if request.generation_id != group.generation:
            return Effects(replies=[Reply(token, HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))])
        preparing = group.state is ClassicState.PREPARING_REBALANCE
        effects = Effects(replies=[Reply(token, _HEARTBEAT_REBALANCE if preparing else _HEARTBEAT_ACCEPTED)])
        self._rebalance.keep_session(group, member, effects, now_ms)
        return effects

    def leave(
        self, group: ClassicGroup, request: LeaveGroupRequest, caller: Caller, token: Token, now_ms: int
    ) -> Effects:
        """Remove members, each with its own answer, and rebalance once for all of them."""
        effects = Effects()
        responses = [self._leave_one(group, identity, effects) for identity in leaving_members(request, caller)]
        if any(response.error_code == ErrorCode.NONE for response in responses):
            if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
                self._rebalance.prepare(group, effects, now_ms)
            else:
                self._rebalance.complete_if_joined(group, effects, now_ms)
        effects.replies.append(Reply(token, leave_response(responses, caller)))
        return effects

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity, effects: Effects) -> MemberResponse:
        member_id, instance_id, _ = identity
        error = ErrorCode.NONE
        leaving: str | None = member_id
        if not member_id:
            # An administrator removes a static member by its instance id.
            leaving = None if instance_id is None else group.static_members.get(instance_id)
            if leaving is None:
                error = ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id not in group.pending_members:
            error = group.check_member(member_id, instance_id)
        if error is ErrorCode.NONE:
            assert leaving is not None
            self._rebalance.drop_member(group, leaving, effects)
        return MemberResponse(member_id, instance_id, error)


def leaving_members(request: LeaveGroupRequest, caller: Caller) -> list[MemberIdentity]:
    """The members that leave; before version 3 a request names one member."""
    return [MemberIdentity(request.member_id)] if caller.api_version <= 2 else list(request.members)


def leave_response(responses: list[MemberResponse], caller: Caller) -> LeaveGroupResponse:
    """One answer for all; before version 3 the member's error is the response's."""
    if caller.api_version <= 2:
        return LeaveGroupResponse(error_code=responses[0].error_code)
    return LeaveGroupResponse(members=responses)


def _assigned(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    # Version 0 has no rebalance timeout.
    return request.session_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
