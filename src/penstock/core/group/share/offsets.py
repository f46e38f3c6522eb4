"""Where a share group starts to read, changed and deleted by administrators while the group is empty.

Both happen in two steps. The first records the request to the share coordinator that is to be sent, and returns it; the
second, after its answer, is in `ShareGroups`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.group.assignors.contract import NO_PARTITIONS, Partitions
from penstock.core.group.contract import Record, Topics
from penstock.core.group.share.group import ShareGroup
from penstock.core.group.share.partitions import NewState
from penstock.core.group.share.records import epoch_record, state_record
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID, Uuid
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponseTopic,
)

_UNKNOWN = "This server does not host this topic-partition."


class AlterResult(NamedTuple):
    """A row for each topic, and the state that its valid partitions are to start with."""

    topics: Sequence[AlterShareGroupOffsetsResponseTopic]
    to_initialize: Sequence[NewState]


class DeleteResult(NamedTuple):
    """Rows for topics without state, and the partitions whose state is to be deleted.

    Only state up to `state_epoch` is: a request that comes late must not delete what has begun anew.
    """

    refused: Sequence[DeleteShareGroupOffsetsResponseTopic] = ()
    to_delete: Partitions = NO_PARTITIONS
    state_epoch: int = 0


def check_empty(group: ShareGroup) -> None:
    """Raises NON_EMPTY_GROUP."""
    if not group.is_empty:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


def alter_offsets(
    group: ShareGroup,
    request: AlterShareGroupOffsetsRequest,
    topics: Topics,
    records: list[Record],
    now_ms: int,
    *,
    is_new: bool,
) -> AlterResult:
    """Record that partitions are to start anew, in a new epoch unless the group is new; raises NON_EMPTY_GROUP.

    A leader that has read their state, or a request of an earlier call that comes late, is fenced by the new epoch.
    Kafka stays in the epoch, so that there a leader which has read the state writes on as if nothing had happened.
    """
    check_empty(group)
    rows = []
    states: list[NewState] = []
    epoch = group.epoch if is_new else group.epoch + 1
    for topic in request.topics:
        row, new = _altered(topic, topics, epoch)
        rows.append(row)
        states += new
    wanted: dict[Uuid, frozenset[int]] = {}
    for state in states:
        wanted[state.topic_id] = wanted.get(state.topic_id, frozenset()) | {state.partition}
        group.asked_ms[state.topic_id] = now_ms
    if wanted:
        records.append(epoch_record(group.group_id, epoch, group.metadata_hash))
        records.append(state_record(group.group_id, group.partitions.begin(wanted), topics))
    return AlterResult(rows, states)


def _altered(
    topic: AlterShareGroupOffsetsRequestTopic, topics: Topics, state_epoch: int
) -> tuple[AlterShareGroupOffsetsResponseTopic, list[NewState]]:
    topic_id = topics.topic_id(topic.topic_name)
    count = topics.partition_count(topic.topic_name) or 0
    rows, states = [], []
    for index, start_offset in topic.partitions:
        if topic_id is None or not 0 <= index < count:
            row = AlterShareGroupOffsetsResponsePartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)
        else:
            row = AlterShareGroupOffsetsResponsePartition(index)
            states.append(NewState(topic_id, index, state_epoch, start_offset))
        rows.append(row)
    return AlterShareGroupOffsetsResponseTopic(topic.topic_name, topic_id or ZERO_UUID, rows), states


def begin_delete_offsets(
    group: ShareGroup, request: DeleteShareGroupOffsetsRequest, topics: Topics, records: list[Record]
) -> DeleteResult:
    """Record that the topics' state is being deleted; raises NON_EMPTY_GROUP."""
    check_empty(group)
    state = group.partitions
    refused = []
    to_delete: dict[Uuid, frozenset[int]] = {}
    for topic in request.topics:
        topic_id = topics.topic_id(topic.topic_name)
        if topic_id is not None and topic_id in state.initialized:
            to_delete[topic_id] = state.initialized[topic_id]
        elif topic_id is not None and topic_id in state.deleting:
            # An earlier attempt may have deleted some of them.
            to_delete[topic_id] = frozenset(range(topics.partition_count(topic.topic_name) or 0))
        else:
            message = _UNKNOWN if topic_id is None else "There is no offset information to delete."
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(DeleteShareGroupOffsetsResponseTopic(topic.topic_name, topic_id or ZERO_UUID, code, message))
    if to_delete:
        records.append(state_record(group.group_id, state.condemn(to_delete), topics))
    return DeleteResult(refused, to_delete, group.epoch)


def begin_delete(group: ShareGroup, topics: Topics, records: list[Record]) -> DeleteResult:
    """Record that all state of the group is being deleted, before the group itself is; raises NON_EMPTY_GROUP."""
    check_empty(group)
    state = group.partitions
    to_delete: dict[Uuid, frozenset[int]] = {}
    for topic_id in state.topic_ids():
        name = topics.topic_name(topic_id)
        # The state of a topic that is gone is not ours to delete.
        if name is not None:
            to_delete[topic_id] = frozenset(range(topics.partition_count(name) or 0))
    if to_delete:
        records.append(state_record(group.group_id, state.condemn(to_delete), topics))
    return DeleteResult((), to_delete, group.epoch)
