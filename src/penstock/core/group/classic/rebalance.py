"""How a classic group gets from one generation to the next.

A rebalance starts when a member joins, leaves or changes. It waits for every member's JoinGroup, at most for the
members' rebalance timeout; the first rebalance of an empty group waits for a fixed delay instead, which is repeated
while members keep joining. Members that have not rejoined by then are removed, except static ones, which may be
restarting. The new generation then has the same time again to send its SyncGroup requests.

Every function adds to the effects it is given. Timers: ("session", group, member), ("join", group), ("sync", group).
"""

from __future__ import annotations

from penstock.core.group.classic.group import ClassicGroup, ClassicState
from penstock.core.group.classic.members import ClassicMember
from penstock.core.group.contract import Effects, GroupSettings, Reply, Timer, TimerKey, Token
from penstock.model.errors import ErrorCode
from penstock.wire.messages.join_group import JoinGroupResponse
from penstock.wire.messages.sync_group import SyncGroupResponse

SESSION_TIMER = "session"
JOIN_TIMER = "join"
SYNC_TIMER = "sync"

# A new member has this long to see the end of its first join phase; its session timeout does not apply before that.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


def session_key(group_id: str, member_id: str) -> TimerKey:
    """The timer of a member's session."""
    return (SESSION_TIMER, group_id, member_id)


def joined(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """The answer to a JoinGroup of the current generation; only the leader gets the list of members."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        member_id=member_id,
        members=group.joined_members() if group.leader == member_id else (),
    )


def join_refused(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """The answer to a rejected JoinGroup."""
    return JoinGroupResponse(error_code=error, member_id=member_id)


class ClassicRebalance:
    """The rebalances of all classic groups of a shard; stateless."""

    __slots__ = ("_initial_delay_ms",)

    def __init__(self, settings: GroupSettings) -> None:
        self._initial_delay_ms = settings.initial_rebalance_delay_ms

    def keep_session(
        self, group: ClassicGroup, member: ClassicMember, effects: Effects, now_ms: int, timeout_ms: int | None = None
    ) -> None:
        """Restart a member's session timeout."""
        deadline_ms = now_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        effects.timers.append(Timer(session_key(group.group_id, member.member_id), deadline_ms))

    def park_join(self, group: ClassicGroup, member: ClassicMember, token: Token, effects: Effects) -> None:
        """Park a JoinGroup; an earlier one of the same member is answered."""
        self.answer_join(group, member, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id), effects)
        group.park_join(member, token)

    def answer_join(
        self, group: ClassicGroup, member: ClassicMember, response: JoinGroupResponse, effects: Effects
    ) -> None:
        """Answer a member's parked JoinGroup, if there is one."""
        token = group.unpark_join(member)
        if token is not None:
            effects.replies.append(Reply(token, response))

    def answer_sync(self, member: ClassicMember, response: SyncGroupResponse, effects: Effects) -> bool:
        """Answer a member's parked SyncGroup, if there is one."""
        token = member.sync_token
        if token is None:
            return False
        member.sync_token = None
        effects.replies.append(Reply(token, response))
        return True

    def drop_member(
        self,
        group: ClassicGroup,
        member_id: str,
        effects: Effects,
        error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID,
    ) -> None:
        """Remove a member, or one that only has an id yet: its requests are answered and its timer is cancelled."""
        member = group.members.get(member_id)
        if member is not None:
            self.answer_join(group, member, join_refused(error, ""), effects)
            self.answer_sync(member, SyncGroupResponse(error_code=error), effects)
        effects.timers.append(Timer(session_key(group.group_id, member_id), None))
        group.remove(member_id)

    def prepare_or_complete(self, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
        """Start a rebalance, or complete the current one if it was only waiting for this."""
        if group.state in (ClassicState.EMPTY, ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            self.prepare(group, effects, now_ms)
        else:
            self.complete_if_joined(group, effects, now_ms)

    def prepare(self, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
        """Start a rebalance: the generation ends, and members waiting for its assignment must rejoin."""
        if group.state is ClassicState.COMPLETING_REBALANCE:
            over = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            for member in group.members.values():
                member.assignment = b""
                if self.answer_sync(member, over, effects):
                    self.keep_session(group, member, effects, now_ms)
        if group.state is not ClassicState.EMPTY:
            group.pending_sync.clear()
            effects.timers.append(Timer((SYNC_TIMER, group.group_id), None))
        is_initial = group.state is ClassicState.EMPTY
        group.transition(ClassicState.PREPARING_REBALANCE, now_ms)
        if is_initial:
            group.initial_delay_ms = self._initial_delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - self._initial_delay_ms, 0)
            group.member_joined_initially = False
            effects.timers.append(Timer((JOIN_TIMER, group.group_id), now_ms + self._initial_delay_ms))
        elif group.has_all_joined:
            self.complete(group, effects, now_ms)
        else:
            effects.timers.append(Timer((JOIN_TIMER, group.group_id), now_ms + group.rebalance_timeout_ms))

    def complete_if_joined(self, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
        """End the join phase if every member has joined; an initial rebalance still waits for its delay."""
        if (
            group.state is ClassicState.PREPARING_REBALANCE
            and group.previous_state is not ClassicState.EMPTY
            and group.has_all_joined
        ):
            self.complete(group, effects, now_ms)

    def member_removed(self, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
        """Carry on without a member that has just been dropped."""
        if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            self.prepare(group, effects, now_ms)
        elif group.state is ClassicState.PREPARING_REBALANCE and group.has_all_joined:
            self.complete(group, effects, now_ms)

    def complete(self, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
        """End the join phase with the members that joined."""
        effects.timers.append(Timer((JOIN_TIMER, group.group_id), None))
        group.initial_delay_ms = None
        late = [
            member.member_id
            for member in group.members.values()
            if member.join_token is None and member.instance_id is None
        ]
        for member_id in late:
            self.drop_member(group, member_id, effects)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, and none of them has rejoined yet.
            effects.timers.append(Timer((JOIN_TIMER, group.group_id), now_ms + group.rebalance_timeout_ms))
            return
        assert all(one.join_token is not None or one.instance_id is not None for one in group.members.values())
        group.start_generation(now_ms)
        if group.is_empty:
            effects.records.append(group.record())
            return
        for member in group.members.values():
            assert group.state is ClassicState.COMPLETING_REBALANCE
            self.answer_join(group, member, joined(group, member.member_id), effects)
            self.keep_session(group, member, effects, now_ms)
            member.is_new = False
            group.pending_sync[member.member_id] = None
        effects.timers.append(Timer((SYNC_TIMER, group.group_id), now_ms + group.rebalance_timeout_ms))

    def join_timer_fired(self, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
        """The join phase ends, unless members joined during the last initial delay and there is time for another."""
        if group.state is not ClassicState.PREPARING_REBALANCE:
            return
        delay_ms = group.initial_delay_ms
        if delay_ms is None or not group.member_joined_initially or not group.initial_remaining_ms:
            self.complete(group, effects, now_ms)
            return
        group.member_joined_initially = False
        group.initial_delay_ms = min(self._initial_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - delay_ms, 0)
        effects.timers.append(Timer((JOIN_TIMER, group.group_id), now_ms + group.initial_delay_ms))

    def sync_timer_fired(self, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
        """Remove members that joined the generation but never sent SyncGroup, and rebalance without them."""
        if group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE) or not group.pending_sync:
            return
        for member_id in list(group.pending_sync):
            self.drop_member(group, member_id, effects)
        self.prepare(group, effects, now_ms)

    def session_timer_fired(self, group: ClassicGroup, member_id: str, effects: Effects, now_ms: int) -> None:
        """Remove a member whose session has expired, unless a parked request shows that it is alive."""
        member = group.members.get(member_id)
        if member is None:
            if member_id in group.pending_members:
                group.remove(member_id)
                if group.state is ClassicState.PREPARING_REBALANCE and group.has_all_joined:
                    self.complete(group, effects, now_ms)
            return
        if not member.needs_no_heartbeat:
            self.drop_member(group, member_id, effects)
            self.member_removed(group, effects, now_ms)
