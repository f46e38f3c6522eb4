"""One partition of __consumer_offsets: the groups that live on it, and their offsets.

The shard finds the group that a request, a record or a timer is about, and passes it to what serves its kind:
`ClassicRequests` and `ClassicRebalance` for classic groups, `ConsumerGroups` for those of KIP-848,
`StreamsGroups` for those of KIP-1071, `OffsetRequests` for offsets of all these; `ShareGroups` for share groups, which
have none. See core/contract.py for what the shell does with the effects; it replays an event's records before the next
event comes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from penstock.core.group.classic.group import ClassicGroup, ClassicState
from penstock.core.group.classic.rebalance import (
    JOIN_TIMER,
    SESSION_TIMER,
    SYNC_TIMER,
    ClassicRebalance,
    join_refused,
    session_key,
)
from penstock.core.group.classic.requests import ClassicRequests, leave_response, leaving_members
from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.consumer.groups import ConsumerGroups
from penstock.core.group.contract import Caller, Effects, GroupSettings, Reply, Timer, TimerKey, Token, Topics
from penstock.core.group.group import Group, Random, find_group
from penstock.core.group.modern.group import replay_record
from penstock.core.group.offsets.expiry import delete_group_offsets, delete_topic_offsets, expire_offsets
from penstock.core.group.offsets.offsets import Offsets, PartitionProgress, StoredRecord
from penstock.core.group.offsets.requests import OffsetRequests, commit_refused, transactional_commit_refused
from penstock.core.group.share.context import SHARE_SESSION_TIMER
from penstock.core.group.share.group import SHARE_GROUP_KEYS, ShareGroup
from penstock.core.group.share.groups import ShareGroups
from penstock.core.group.sizes import content_bytes
from penstock.core.group.streams.context import STREAMS_INITIAL_TIMER, STREAMS_TIMERS
from penstock.core.group.streams.group import STREAMS_GROUP_KEYS, StreamsGroup
from penstock.core.group.streams.groups import StreamsGroups
from penstock.core.group.subscription.topics import TopicCatalog
from penstock.core.kept_bytes import KeptBytes
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition, Uuid
from penstock.wire.messages import describe_groups
from penstock.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from penstock.wire.messages.list_groups import ListedGroup
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

# After looking at so many groups and offsets, whether they have expired, others get their turn.
EXPIRED_PER_TURN = 500
# What a group takes in memory besides its members and offsets, about.
GROUP_BYTES = 500


class GroupShard:
    """The groups of one partition. Every event returns the effects that the shell must carry out."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: Topics,
        random: Random,
        configs: Callable[[str], Mapping[str, str]],
        cpu_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`cpu_s` is the processor time that was used so far."""
        self._settings = settings
        self._groups: dict[str, Group] = {}
        # Of groups, their members and their offsets.
        self._kept = KeptBytes(settings.prefix_bytes_max)
        self._kept_of_members: dict[str, int] = {}
        self._offsets = Offsets(self._kept)
        self._rebalance = ClassicRebalance(settings)
        self._classic = ClassicRequests(settings, random, self._rebalance)
        self._offset_requests = OffsetRequests(settings, self._offsets, topics, self._kept)
        self._catalog = TopicCatalog(topics, cpu_s)
        self.consumer = ConsumerGroups(
            settings, self._catalog, random, configs, self._groups, self._rebalance, self._kept
        )
        self.share = ShareGroups(settings, self._catalog, configs, self._groups, self._kept)
        self.streams = StreamsGroups(settings, self._catalog, configs, self._groups, self._kept)

    # The classic protocol, which members of a consumer group may use too while they migrate.

    def join_group(self, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int) -> Effects:
        """Answered when the rebalance has completed its join phase."""
        effects = self._join_group(request, caller, token, now_ms)
        self._count_members(request.group_id)
        return effects

    def _count_members(self, group_id: str) -> None:
        """What a group and its members take may have changed."""
        group = self._groups.get(group_id)
        now = 0 if group is None else GROUP_BYTES + len(group_id) + group.metadata_bytes
        before = self._kept_of_members.get(group_id, 0)
        if now == before:
            return
        self._kept.add(group_id, now - before)
        if now:
            self._kept_of_members[group_id] = now
        else:
            del self._kept_of_members[group_id]

    def _join_group(self, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int) -> Effects:
        group = self._groups.get(request.group_id)
        error = self._check_join(group, request, caller)
        if error is not ErrorCode.NONE:
            return Effects(replies=[Reply(token, join_refused(error, request.member_id))])
        if isinstance(group, ClassicGroup):
            return self._classic.join(group, request, caller, token, now_ms)
        if isinstance(group, ShareGroup) or (isinstance(group, StreamsGroup) and not group.is_empty):
            return Effects(replies=[Reply(token, join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))])
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self.consumer.join(group, request, caller, token, now_ms)
        if request.member_id:
            # Only a new member can create a group.
            refused = join_refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            return Effects(replies=[Reply(token, refused)])
        founded = ClassicGroup(request.group_id, now_ms)
        if not founded.supports(request.protocol_type, request.protocols):
            return Effects(replies=[Reply(token, join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))])
        effects = Effects(records=[] if group is None else group.tombstones())
        self._groups[request.group_id] = founded
        effects.records.append(founded.record())
        effects.merge(self._classic.join(founded, request, caller, token, now_ms))
        return effects

    def _check_join(self, group: Group | None, request: JoinGroupRequest, caller: Caller) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        others = group.others_bytes(request.member_id) if isinstance(group, ClassicGroup) else len(request.group_id)
        if others + content_bytes(request) + len(caller.client_id) > self._settings.metadata_bytes_max:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._kept.has_room(caller.widest_prefix):
            member = group.members.get(request.member_id) if isinstance(group, ClassicGroup) else None
            if member is None or content_bytes(request.protocols) > content_bytes(member.protocols):
                return ErrorCode.GROUP_MAX_SIZE_REACHED
        shortest_ms, longest_ms = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return ErrorCode.NONE

    def sync_group(self, request: SyncGroupRequest, caller: Caller, token: Token, now_ms: int) -> Effects:  # noqa: ARG002
        """Answered when the leader has sent the assignment."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return self._classic.sync(group, request, token, now_ms)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self.consumer.sync(group, request, token, now_ms)
        error = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        return Effects(replies=[Reply(token, SyncGroupResponse(error_code=error))])

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, token: Token, now_ms: int) -> Effects:  # noqa: ARG002
        """Keeps a member's session."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return self._classic.heartbeat(group, request, token, now_ms)
        if isinstance(group, ConsumerGroup):
            return self.consumer.classic_heartbeat(group, request, token, now_ms)
        error = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        return Effects(replies=[Reply(token, HeartbeatResponse(error_code=error))])

    def leave_group(self, request: LeaveGroupRequest, caller: Caller, token: Token, now_ms: int) -> Effects:
        """Removes members from their group."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            effects = self._classic.leave(group, request, caller, token, now_ms)
            self._count_members(request.group_id)
            return effects
        if isinstance(group, ConsumerGroup):
            return self.consumer.leave(group, request, caller, token, now_ms)
        if not request.group_id:
            return Effects(replies=[Reply(token, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))])
        responses = [
            MemberResponse(identity.member_id, identity.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
            for identity in leaving_members(request, caller)
        ]
        return Effects(replies=[Reply(token, leave_response(responses, caller))])

    def offset_commit(self, request: OffsetCommitRequest, caller: Caller, token: Token, now_ms: int) -> Effects:
        """Commits offsets if the group allows this member to; that also extends its session."""
        group = self._groups.get(request.group_id)
        error = self._offset_requests.check_commit(group, request, caller)
        if error is not ErrorCode.NONE:
            return Effects(replies=[Reply(token, commit_refused(request, error))])
        effects = self._offset_requests.commit(request, caller, token, now_ms)
        if isinstance(group, ClassicGroup):
            member = group.members.get(request.member_id)
            if member is not None:
                self._rebalance.keep_session(group, member, effects, now_ms)
        return effects

    def txn_offset_commit(self, request: TxnOffsetCommitRequest, caller: Caller, token: Token, now_ms: int) -> Effects:
        """Commits offsets as part of a producer's transaction; they become visible with the transaction's marker."""
        error = self._offset_requests.check_transactional_commit(self._groups.get(request.group_id), request, caller)
        if error is not ErrorCode.NONE:
            return Effects(replies=[Reply(token, transactional_commit_refused(request, error))])
        return self._offset_requests.commit_in_transaction(request, caller, token, now_ms)

    def offset_fetch_group(
        self,
        request: OffsetFetchRequestGroup,
        require_stable: bool,
        caller: Caller,  # noqa: ARG002
    ) -> OffsetFetchResponseGroup:
        """One group's committed offsets."""
        group_id, member_id, member_epoch, topics = request
        group = self._groups.get(group_id)
        return self._offset_requests.fetch(
            group, group_id, member_id, member_epoch, topics, require_stable=require_stable
        )

    def offset_delete(
        self,
        request: OffsetDeleteRequest,
        caller: Caller,  # noqa: ARG002
        token: Token,
        now_ms: int,  # noqa: ARG002
    ) -> Effects:
        """Deletes offsets that no member needs."""
        if not request.group_id:
            return Effects(replies=[Reply(token, OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID))])
        return self._offset_requests.delete(self._groups.get(request.group_id), request, token)

    def committed(self, group_id: str) -> Mapping[TopicPartition, PartitionProgress]:
        """A group's committed offsets with their recent history, to measure its lag."""
        return {
            partition: progress
            for partition, progress in self._offsets.progress(group_id).items()
            if self._offset_requests.is_current(partition.topic, progress.committed)
        }

    def expire_offsets(self, now_ms: int) -> Iterator[Effects]:
        """Delete expired offsets, and groups that have neither members nor offsets left. Share groups stay.

        A few groups at a time: each piece is to be carried out before the next one is requested.
        """
        effects = Effects()
        retention_ms = self._settings.offsets_retention_ms
        looked_at = 0
        for group_id in [*self._groups]:
            group = self._groups.get(group_id)
            if group is None or isinstance(group, ShareGroup):
                continue
            looked_at += 1 + sum(map(len, self._offsets.of_group(group_id).values()))
            if expire_offsets(self._offsets, group, retention_ms, now_ms, effects.records) and group.is_empty:
                self._delete(group, effects)
            if looked_at >= EXPIRED_PER_TURN:
                yield effects
                effects, looked_at = Effects(), 0
        yield effects

    def delete_group(self, group_id: str, token: Token, now_ms: int) -> Effects:  # noqa: ARG002
        """Deletes a group without members, with its offsets. The reply is an ErrorCode."""
        group = self._groups.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
        effects = Effects(replies=[Reply(token, error)])
        if group is not None and error is ErrorCode.NONE:
            effects.records += delete_group_offsets(self._offsets, group_id)
            self._delete(group, effects)
        return effects

    def _delete(self, group: Group, effects: Effects) -> None:
        effects.records += group.tombstones()
        if isinstance(group, ClassicGroup):
            effects.timers += [Timer(session_key(group.group_id, member), None) for member in group.pending_members]
        elif isinstance(group, StreamsGroup):
            effects.timers.append(Timer((STREAMS_INITIAL_TIMER, group.group_id), None))

    def list_groups(self) -> list[ListedGroup]:
        """A row for every group."""
        return [group.listed() for group in self._groups.values()]

    def describe_group(self, group_id: str) -> describe_groups.DescribedGroup:
        """A classic group with its members; raises ApiError if there is no such group."""
        return find_group(self._groups, ClassicGroup, group_id).described()

    def load(self, records: Iterable[StoredRecord]) -> list[StoredRecord]:
        """Take in stored keys and values in order, before `loaded`.

        Offset commits are kept and decoded when they are needed, which makes loading fast. Returns the other records,
        for the shell to decode and to `replay`. Records of transactions are decoded and replayed in order, with their
        offset and producer, and so are markers with `replay_end_transaction`.
        """
        return self._offsets.load(records)

    def replay(self, key: Any, value: Any, offset: int = -1, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record; with a producer id it is pending until its transaction ends."""
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            if value is not None and key.group not in self._groups:
                self._groups[key.group] = ClassicGroup(key.group)
                self._count_members(key.group)
            self._offsets.replay(key, value, offset, producer_id)
        elif isinstance(key, GroupMetadataKey):
            self._replay_classic(key.group, value)
            self._count_members(key.group)
        else:
            kind = (
                ShareGroup
                if isinstance(key, SHARE_GROUP_KEYS)
                else StreamsGroup
                if isinstance(key, STREAMS_GROUP_KEYS)
                else ConsumerGroup
            )
            replay_record(self._groups, kind, key, value)
            self._count_members(key.group_id)

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self._groups.get(group_id)
        if value is None:
            # It is not about a group that has migrated to the other protocol.
            if isinstance(group, ClassicGroup):
                del self._groups[group_id]
        elif isinstance(group, ClassicGroup):
            self._groups[group_id] = group.replayed(value)
        else:
            self._groups[group_id] = ClassicGroup.from_record(group_id, value)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply a transaction's marker to the offsets that it committed."""
        self._offsets.end_transaction(producer_id, committed)

    def loaded(self, now_ms: int) -> Effects:
        """All records are replayed: every member's session timeout starts now.

        Topics may have been deleted while no coordinator was there to delete their offsets. This broker has all of the
        metadata up to the election that made it the coordinator: a topic that it does not know is gone.
        """
        self._offsets.count_stored()
        topics = self._catalog.topics
        gone = [topic for topic in self._offsets.topics() if topics.topic_id(topic) is None]
        effects = Effects(records=delete_topic_offsets(self._offsets, gone))
        with_offsets = {*self._offsets.group_ids()}
        for group_id in with_offsets.difference(self._groups):
            self._groups[group_id] = ClassicGroup(group_id)
            self._count_members(group_id)
        for group in [*self._groups.values()]:
            # It was only there for offsets of a transaction that has ended, or was deleted since.
            has_offsets = group.group_id in with_offsets or self._offsets.has_open_transaction(group.group_id)
            if isinstance(group, ClassicGroup) and not group.is_recorded and not has_offsets:
                del self._groups[group.group_id]
                self._count_members(group.group_id)
        for group in self._groups.values():
            if not isinstance(group, ClassicGroup):
                continue
            for member in group.members.values():
                self._rebalance.keep_session(group, member, effects, now_ms)
            if len(group.members) > self._settings.max_size or not group.is_assigned:
                self._rebalance.prepare(group, effects, now_ms)
        effects.merge(self.consumer.loaded(now_ms))
        effects.merge(self.share.loaded(now_ms))
        effects.merge(self.streams.loaded(now_ms))
        return effects

    def unloaded(self) -> Effects:
        """This broker no longer coordinates these groups: parked requests are answered with NOT_COORDINATOR."""
        effects = Effects()
        not_here = ErrorCode.NOT_COORDINATOR
        for group in self._groups.values():
            if not isinstance(group, ClassicGroup):
                continue
            for member in group.members.values():
                self._rebalance.answer_join(group, member, join_refused(not_here, member.member_id), effects)
                self._rebalance.answer_sync(member, SyncGroupResponse(error_code=not_here), effects)
            group.state = ClassicState.DEAD
        return effects

    def timer_fired(self, key: TimerKey, now_ms: int) -> Effects:
        """A timer fired; one of a group that is gone is ignored."""
        effects = Effects()
        group = self._groups.get(key[1])
        if key[0] == SHARE_SESSION_TIMER:
            return self.share.timer_fired(key)
        if key[0] in STREAMS_TIMERS:
            return self.streams.timer_fired(key, now_ms)
        if key[0] not in (SESSION_TIMER, JOIN_TIMER, SYNC_TIMER):
            return self.consumer.timer_fired(key, now_ms)
        if not isinstance(group, ClassicGroup):
            return effects
        if key[0] == SESSION_TIMER:
            self._rebalance.session_timer_fired(group, key[2], effects, now_ms)
        elif key[0] == JOIN_TIMER:
            self._rebalance.join_timer_fired(group, effects, now_ms)
        else:
            self._rebalance.sync_timer_fired(group, effects, now_ms)
        self._count_members(group.group_id)
        return effects

    def topics_changed(
        self, changed: Collection[str], deleted: Collection[str], deleted_ids: Collection[Uuid] = ()
    ) -> Effects:
        """Topics were created or changed, or were deleted together with their offsets."""
        effects = Effects(records=delete_topic_offsets(self._offsets, deleted))
        names = {*changed, *deleted}
        self._catalog.changed(names)
        self.consumer.topics_changed(names)
        self.streams.topics_changed(names)
        effects.merge(self.share.topics_changed(names, deleted_ids))
        return effects
