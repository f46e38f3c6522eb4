"""A classic group: its members, its state, and what they agreed on.

    EMPTY                  a member joins                               -> PREPARING_REBALANCE
    PREPARING_REBALANCE    all members joined, or the time is up        -> COMPLETING_REBALANCE
                           the group has no members left                -> EMPTY
    COMPLETING_REBALANCE   the leader brings the assignment             -> STABLE
                           a member joins, leaves or changes            -> PREPARING_REBALANCE
    STABLE                 the same, or the leader joins again          -> PREPARING_REBALANCE

PREPARING_REBALANCE parks JoinGroup requests until every member has sent one; COMPLETING_REBALANCE has started a new
generation and parks SyncGroup requests until the leader's brings the assignment. A group is DEAD once its shard is
unloaded. The state between two records is not durable: a coordinator that takes over starts from the last record, which
is either a STABLE generation or an EMPTY group. A STABLE generation without a leader has not been assigned to the
members that are left, and is rebalanced at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

from penstock.core.group.classic.members import ClassicMember
from penstock.core.group.contract import Record, Token
from penstock.core.group.group import GroupKind
from penstock.core.group.sizes import content_bytes
from penstock.model.errors import ErrorCode
from penstock.wire.codec import decoder
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.wire.messages.describe_groups import DescribedGroup
from penstock.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue
from penstock.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember
from penstock.wire.messages.list_groups import ListedGroup
from penstock.wire.primitives import MalformedMessage

# The protocol type of consumers; only their members' metadata contains the topics they read.
CONSUMER_PROTOCOL_TYPE = "consumer"
GROUP_METADATA_VERSION = 3
# A subscription starts with its version, and every version can be read as the first one.
_SUBSCRIPTION_START = 2


class ClassicState(StrEnum):
    """The states, as DescribeGroups prints them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_BEFORE = {
    ClassicState.EMPTY: (ClassicState.PREPARING_REBALANCE,),
    ClassicState.PREPARING_REBALANCE: (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY),
    ClassicState.COMPLETING_REBALANCE: (ClassicState.PREPARING_REBALANCE,),
    ClassicState.STABLE: (ClassicState.COMPLETING_REBALANCE,),
    ClassicState.DEAD: tuple(ClassicState),
}


class ClassicGroup:
    """One classic group; the coordinator of the shard drives it."""

    kind = GroupKind.CLASSIC
    __slots__ = (
        "_awaiting_join",
        "_members_bytes",
        "_pending_bytes",
        "_protocol_support",
        "generation",
        "group_id",
        "initial_delay_ms",
        "initial_remaining_ms",
        "leader",
        "member_joined_initially",
        "members",
        "pending_members",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, state_timestamp_ms: int | None = None) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        # None when the topics are unknown: the members are not consumers, or their metadata is not a subscription.
        self.subscribed_topics: frozenset[str] | None = None
        # Ids handed out with MEMBER_ID_REQUIRED whose members have not joined yet.
        self.pending_members: dict[str, None] = {}
        # Members of this generation that have not sent their SyncGroup yet.
        self.pending_sync: dict[str, None] = {}
        self.initial_delay_ms: int | None = None
        self.initial_remaining_ms = 0
        self.member_joined_initially = False
        self._awaiting_join = 0
        self._members_bytes = 0
        self._pending_bytes = 0
        self._protocol_support: Counter[str] = Counter()

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group that a record describes: stable if it has members, empty otherwise, with no parked requests."""
        timestamp_ms = value.current_state_timestamp
        group = cls(group_id, None if timestamp_ms == -1 else timestamp_ms)
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.generation = value.generation
        for recorded in value.members:
            group.add(ClassicMember.from_record(recorded, value.protocol or ""), value.protocol_type)
        if group.members:
            group.state = ClassicState.STABLE
            group.leader = value.leader if value.leader in group.members else None
        group.subscribed_topics = group._compute_subscribed_topics()
        return group

    def replayed(self, value: GroupMetadataValue) -> ClassicGroup:
        """The group after replaying a record of it.

        A record that this coordinator has just written describes the group as it is: the generation becomes stable, and
        parked requests and the members' protocols are kept. Any other record replaces the group.
        """
        if self.state is ClassicState.PREPARING_REBALANCE:
            # The first record of a group, whose first member is joining already.
            return self
        recorded = {member.member_id: member for member in value.members}
        if value.generation != self.generation or recorded.keys() != self.members.keys():
            return ClassicGroup.from_record(self.group_id, value)
        for member in self.members.values():
            member.assignment = bytes(recorded[member.member_id].assignment)
        if self.state is ClassicState.COMPLETING_REBALANCE:
            self.transition(ClassicState.STABLE, value.current_state_timestamp)
        self.state_timestamp_ms = value.current_state_timestamp
        return self

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members and no rebalance in progress."""
        return self.state is ClassicState.EMPTY

    @property
    def is_recorded(self) -> bool:
        """Whether the group has a record of its own, and is not only there because offsets were committed for it."""
        return self.state_timestamp_ms is not None or self.protocol_type is not None or bool(self.members)

    @property
    def is_assigned(self) -> bool:
        """Whether a leader has assigned the partitions; not in a group that was just a consumer group."""
        return self.leader is not None or not self.members

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether members are consumers, whose metadata names the topics they read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def has_all_joined(self) -> bool:
        """Whether every member's JoinGroup is parked and no member with a pending id has yet to join."""
        return len(self.members) == self._awaiting_join and not self.pending_members

    @property
    def awaiting_join_count(self) -> int:
        """How many JoinGroup requests are parked."""
        return self._awaiting_join

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits: the largest rebalance timeout of its members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def metadata_bytes(self) -> int:
        """About how much memory the members, and the ids of those that are yet to join, take."""
        return self._members_bytes + self._pending_bytes

    def others_bytes(self, member_id: str) -> int:
        """About how much memory the members but one, and the ids of those that are yet to join, take."""
        member = self.members.get(member_id)
        return self._members_bytes - (0 if member is None else member.size_bytes) + self._pending_bytes

    def expect(self, member_id: str) -> None:
        """A client was given this id to join with."""
        if member_id not in self.pending_members:
            self.pending_members[member_id] = None
            self._pending_bytes += len(member_id)

    def _expect_no_more(self, member_id: str) -> None:
        if member_id in self.pending_members:
            del self.pending_members[member_id]
            self._pending_bytes -= len(member_id)
            assert self._pending_bytes >= 0

    def transition(self, state: ClassicState, now_ms: int) -> None:
        """Go on to another state."""
        assert self.state in _BEFORE[state], f"group {self.group_id} cannot go from {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a member; the first one decides the protocol type and becomes the leader."""
        if not self.members:
            self.protocol_type = protocol_type
        assert protocol_type == self.protocol_type, "members share a protocol type"
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, f"{member.instance_id} is taken"
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._members_bytes += member.size_bytes
        self._protocol_support.update(member.protocol_names)
        self._expect_no_more(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending one; its parked requests have been answered already."""
        self._expect_no_more(member_id)
        self.pending_sync.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        assert not member.has_parked_request, f"member {member_id} still has a parked request"
        self._members_bytes -= member.size_bytes
        self._drop_support(member)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace_static(self, instance_id: str, new_member_id: str) -> ClassicMember:
        """Give a static member another id, because its instance restarted; nothing else about it changes."""
        old = self.members.pop(self.static_members[instance_id])
        assert not old.has_parked_request, f"member {old.member_id} still has a parked request"
        member = ClassicMember(
            new_member_id,
            instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.members[new_member_id] = member
        self._members_bytes += member.size_bytes - old.size_bytes
        self.static_members[instance_id] = new_member_id
        if self.leader == old.member_id:
            self.leader = new_member_id
        if old.member_id in self.pending_sync:
            del self.pending_sync[old.member_id]
            self.pending_sync[new_member_id] = None
        return member

    def update(
        self,
        member: ClassicMember,
        protocols: Sequence[JoinGroupRequestProtocol],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Update a member from its newer JoinGroup."""
        self._drop_support(member)
        added_bytes = content_bytes(protocols) - content_bytes(member.protocols)
        member.size_bytes += added_bytes
        self._members_bytes += added_bytes
        member.protocols = tuple(protocols)
        self._protocol_support.update(member.protocol_names)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def park_join(self, member: ClassicMember, token: Token) -> None:
        """Park a JoinGroup until the end of the join phase."""
        assert member.join_token is None
        member.join_token = token
        self._awaiting_join += 1
        assert self._awaiting_join <= len(self.members), "a member has one request parked"

    def unpark_join(self, member: ClassicMember) -> Token | None:
        """The member's parked JoinGroup, to be answered now."""
        token = member.join_token
        if token is not None:
            member.join_token = None
            self._awaiting_join -= 1
            assert self._awaiting_join >= 0
        return token

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader takes part in this rebalance; False if no member does."""
        if self.leader is not None and self.members[self.leader].join_token is not None:
            return True
        joined = next((member for member in self.members.values() if member.join_token is not None), None)
        if joined is None:
            return False
        assert joined.member_id in self.members
        self.leader = joined.member_id
        return True

    def start_generation(self, now_ms: int) -> None:
        """End the join phase: choose a protocol among the members that joined, or become empty."""
        self.generation += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition(ClassicState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.transition(ClassicState.EMPTY, now_ms)
        self.subscribed_topics = self._compute_subscribed_topics()

    def supports(self, protocol_type: str, protocols: Sequence[JoinGroupRequestProtocol]) -> bool:
        """Whether a member with these protocols can join: one of them must be supported by every member."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        size = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._protocol_support[protocol.name] == size for protocol in protocols
        )

    def select_protocol(self) -> str:
        """The protocol that all members support and most of them prefer."""
        size = len(self.members)
        candidates = {name for name, count in self._protocol_support.items() if count == size}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        assert votes.total() == size, "each member has one vote"
        return max(votes, key=votes.__getitem__)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether a request comes from a current member, and not from a former holder of its instance id."""
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        api_version: int,  # noqa: ARG002
        *,
        transactional: bool,
    ) -> ErrorCode:
        """Members commit in their generation; a commit without a generation needs an empty group."""
        if self.state is ClassicState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.is_empty:
            return ErrorCode.NONE
        if generation >= 0 or member_id or instance_id is not None:
            error = self.check_member(member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:  # noqa: ARG002
        """Anybody may read a classic group's offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND if self.state is ClassicState.DEAD else ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        """With members, only consumers' topics are known; otherwise an offset in use might be deleted."""
        if self.state is ClassicState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not self.is_empty and not self.uses_consumer_protocol:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        """Only an empty group can be deleted."""
        if self.state is ClassicState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic; consumers whose topics are unknown may read any topic."""
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.uses_consumer_protocol

    def retention_starts_ms(self, commit_timestamp_ms: int) -> int | None:
        """Counts from when the group became empty, or from the commit for a simple group or an unread topic."""
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.is_empty:
            return commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        if self.uses_consumer_protocol and self.subscribed_topics is not None and self.state is ClassicState.STABLE:
            return commit_timestamp_ms
        return None

    def tombstones(self) -> list[Record]:
        """The record that deletes the group."""
        return [Record(GroupMetadataKey(self.group_id), None)]

    def record(self, assignments: Mapping[str, bytes] | None = None) -> Record:
        """The group as it is now, with the members' current assignments or with new ones."""
        protocol = self.protocol_name
        assert protocol is not None or not self.members, "members have agreed on a protocol"
        members = [
            member.record(
                protocol or "", member.assignment if assignments is None else assignments.get(member.member_id, b"")
            )
            for member in self.members.values()
        ]
        timestamp_ms = -1 if self.state_timestamp_ms is None else self.state_timestamp_ms
        value = GroupMetadataValue(
            self.protocol_type or "", self.generation, protocol, self.leader, timestamp_ms, members
        )
        return Record(GroupMetadataKey(self.group_id), value, GROUP_METADATA_VERSION)

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """The members as the leader needs them for the assignment."""
        protocol = self.protocol_name
        assert protocol is not None
        return [
            JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self.members.values()
        ]

    def listed(self) -> ListedGroup:
        """The group's row in ListGroups."""
        return ListedGroup(self.group_id, self.protocol_type or "", self.state.value, self.kind.value)

    def described(self) -> DescribedGroup:
        """The group in DescribeGroups; protocol and subscriptions are shown for a stable group only."""
        protocol = self.protocol_name if self.state is ClassicState.STABLE else None
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=protocol or "",
            members=[member.described(protocol) for member in self.members.values()],
        )

    def _drop_support(self, member: ClassicMember) -> None:
        for name in member.protocol_names:
            self._protocol_support[name] -= 1
            assert self._protocol_support[name] >= 0, "what is dropped was counted"
            if not self._protocol_support[name]:
                del self._protocol_support[name]

    def _compute_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics |= _subscribed_topics(member.metadata(self.protocol_name))
            except MalformedMessage:
                return None
        return frozenset(topics)


def _subscribed_topics(metadata: bytes) -> set[str]:
    if len(metadata) < _SUBSCRIPTION_START:
        raise MalformedMessage("the subscription has no version")
    subscription, _ = decoder(ConsumerProtocolSubscription, 0)(metadata, _SUBSCRIPTION_START)
    return set(subscription.topics)
