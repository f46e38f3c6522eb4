"""The share groups of a shard: finds the group that an event is about, and turns errors into responses.

What the share coordinator is to do is part of a reply. The shell calls it once the reply is sent, and comes back with
the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping

from penstock.core.group.assignors.contract import Partitions
from penstock.core.group.contract import Caller, Effects, GroupSettings, Reply, TimerKey, Token, Topics
from penstock.core.group.group import Group, find_group
from penstock.core.group.modern.members import JOIN_EPOCH, LEAVE_EPOCH
from penstock.core.group.share.context import ShareContext
from penstock.core.group.share.describe import described
from penstock.core.group.share.group import ShareGroup
from penstock.core.group.share.heartbeat import HeartbeatResult, check_request, heartbeat, leave
from penstock.core.group.share.offsets import DeleteResult, alter_offsets, begin_delete, begin_delete_offsets
from penstock.core.group.share.partitions import SharePartitions
from penstock.core.group.share.records import epoch_record, state_record
from penstock.core.group.subscription.topics import TopicCatalog
from penstock.core.kept_bytes import KeptBytes
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from penstock.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from penstock.wire.messages.share_group_describe import DescribedGroup
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


class ShareGroups:
    """Serves the groups among `groups` that are share groups; the shard owns the map."""

    def __init__(
        self,
        settings: GroupSettings,
        catalog: TopicCatalog,
        configs: Callable[[str], Mapping[str, str]],
        groups: MutableMapping[str, Group],
        kept: KeptBytes,
    ) -> None:
        self._context = ShareContext(settings, catalog, configs, kept)
        self._groups = groups

    @property
    def _topics(self) -> Topics:
        return self._context.catalog.topics

    def heartbeat(self, request: ShareGroupHeartbeatRequest, caller: Caller, token: Token, now_ms: int) -> Effects:
        """A member joins, sends its heartbeat, or leaves. The reply is a HeartbeatResult."""
        effects = Effects()
        try:
            check_request(request)
            if request.member_epoch == LEAVE_EPOCH:
                group = self.find(request.group_id)
                result = HeartbeatResult(leave(self._context, group, request.member_id, effects))
            else:
                group = self._find_or_found(request.group_id, may_found=request.member_epoch == JOIN_EPOCH)
                result = heartbeat(self._context, group, request, caller, effects, now_ms)
                self._groups[request.group_id] = group
        except ApiError as error:
            effects = Effects()
            result = HeartbeatResult(ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message))
        effects.replies.append(Reply(token, result))
        return effects

    def find(self, group_id: str) -> ShareGroup:
        """The share group of that name; raises GROUP_ID_NOT_FOUND."""
        return self._find_or_found(group_id, may_found=False)

    def _find_or_found(self, group_id: str, *, may_found: bool) -> ShareGroup:
        if group_id in self._groups:
            return find_group(self._groups, ShareGroup, group_id)
        if not may_found:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return ShareGroup(group_id)

    def describe(self, group_id: str) -> DescribedGroup:
        """The group with its members, as ShareGroupDescribe shows it; raises GROUP_ID_NOT_FOUND."""
        return described(self._topics, self.find(group_id))

    def initialized_partitions(self, group_id: str) -> Partitions:
        """The partitions that have state; none for a group that does not exist."""
        group = self._groups.get(group_id)
        return group.partitions.initialized if isinstance(group, ShareGroup) else {}

    def initialized(self, group_id: str, partitions: Partitions, failed: Partitions, token: Token) -> Effects:
        """The share coordinator has initialized partitions, and could not initialize others. The reply is None."""
        return self._change(group_id, lambda state: state.complete(partitions).give_up(failed), token)

    def outgrow(self, group_id: str, state_epoch: int, token: Token) -> Effects:
        """A share-partition has state of a former group of this name, in a higher epoch than this one ever had.

        The reply is the group's epoch, now a higher one; None where the state may be its own.
        """
        effects = Effects()
        group = self._groups.get(group_id)
        epoch = None
        if isinstance(group, ShareGroup) and state_epoch > group.epoch:
            epoch = state_epoch + 1
            effects.records.append(epoch_record(group_id, epoch, group.metadata_hash))
        effects.replies.append(Reply(token, epoch))
        return effects

    def deleted(self, group_id: str, topics: Collection[Uuid], token: Token) -> Effects:
        """The share coordinator has deleted the state of topics. The reply is None."""
        return self._change(group_id, lambda state: state.finish(topics), token)

    def _change(self, group_id: str, change: Callable[[SharePartitions], SharePartitions], token: Token) -> Effects:
        effects = Effects(replies=[Reply(token, None)])
        group = self._groups.get(group_id)
        # The group may have been deleted meanwhile.
        if isinstance(group, ShareGroup):
            changed = change(group.partitions)
            if changed != group.partitions:
                effects.records.append(state_record(group_id, changed, self._topics))
        return effects

    def alter_offsets(self, request: AlterShareGroupOffsetsRequest, token: Token, now_ms: int) -> Effects:
        """Have an empty group, or a new one, start elsewhere. The reply is an AlterResult or an ApiError."""
        effects = Effects()
        try:
            is_new = request.group_id not in self._groups
            group = self._find_or_found(request.group_id, may_found=True)
            result: object = alter_offsets(group, request, self._topics, effects.records, now_ms, is_new=is_new)
            if effects.records:
                self._groups[request.group_id] = group
        except ApiError as error:
            result = error
        effects.replies.append(Reply(token, result))
        return effects

    def begin_delete_offsets(self, request: DeleteShareGroupOffsetsRequest, token: Token) -> Effects:
        """Begin to delete the state of topics. The reply is a DeleteResult or an ApiError."""
        effects = Effects()
        try:
            group = self.find(request.group_id)
            result: object = begin_delete_offsets(group, request, self._topics, effects.records)
        except ApiError as error:
            result = error
        effects.replies.append(Reply(token, result))
        return effects

    def begin_delete(self, group_id: str, token: Token) -> Effects:
        """Begin to delete a group, if it is a share group. The reply is a DeleteResult or an ApiError."""
        effects = Effects()
        group = self._groups.get(group_id)
        result: object = DeleteResult()
        if isinstance(group, ShareGroup):
            try:
                result = begin_delete(group, self._topics, effects.records)
            except ApiError as error:
                result = error
        effects.replies.append(Reply(token, result))
        return effects

    def loaded(self, now_ms: int) -> Effects:
        """All records are replayed: session timeouts start now, and topics that are gone are forgotten.

        Initializations that the coordinator before requested are requested again with the next heartbeat. If the
        earlier request is still under way, whichever comes last changes nothing: no member has the partitions yet.
        """
        effects = Effects()
        for group in self._groups.values():
            if isinstance(group, ShareGroup):
                for member_id in group.members:
                    self._context.keep_session(group, member_id, effects, now_ms)
                self._forget(group, {one for one in group.partitions.topic_ids() if not self._exists(one)}, effects)
        return effects

    def _exists(self, topic_id: Uuid) -> bool:
        return self._topics.topic_name(topic_id) is not None

    def _forget(self, group: ShareGroup, gone: Collection[Uuid], effects: Effects) -> None:
        if gone:
            effects.records.append(state_record(group.group_id, group.partitions.forget(gone), self._topics))

    def timer_fired(self, key: TimerKey) -> Effects:
        """A member's session is over; timers of members that have left are ignored."""
        effects = Effects()
        _, group_id, member_id = key
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup) and member_id in group.members:
            leave(self._context, group, member_id, effects)
        return effects

    def topics_changed(self, names: Collection[str], deleted_ids: Collection[Uuid]) -> Effects:
        """Topics changed, and the ones of these ids are gone: the share coordinator has forgotten their state."""
        effects = Effects()
        for group in self._groups.values():
            if not isinstance(group, ShareGroup):
                continue
            if any(group.is_subscribed_to(name) for name in names):
                group.metadata_is_current = False
            self._forget(group, group.partitions.topic_ids().intersection(deleted_ids), effects)
        return effects
