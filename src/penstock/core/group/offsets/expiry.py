"""Which offsets are deleted: those that have expired, those of deleted topics, and all of a deleted group's."""

from __future__ import annotations

from collections.abc import Collection

from penstock.core.group.contract import Record
from penstock.core.group.group import Group
from penstock.core.group.offsets.offsets import CommittedOffset, Offsets
from penstock.wire.messages.group_records import OffsetCommitKey

NO_EXPIRY = -1


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    """The record that deletes one offset."""
    return Record(OffsetCommitKey(group_id, topic, partition), None)


def delete_group_offsets(offsets: Offsets, group_id: str) -> list[Record]:
    """The records that delete every offset of a group."""
    return [offset_tombstone(group_id, *partition) for partition in offsets.partitions(group_id)]


def delete_topic_offsets(offsets: Offsets, topics: Collection[str]) -> list[Record]:
    """The records that delete the offsets of deleted topics."""
    gone = frozenset(topics)
    if not gone:
        return []
    return [
        offset_tombstone(group_id, *partition)
        for group_id in offsets.groups_with_topics(gone)
        for partition in offsets.partitions(group_id)
        if partition.topic in gone
    ]


def expire_offsets(offsets: Offsets, group: Group, retention_ms: int, now_ms: int, records: list[Record]) -> bool:
    """Add the tombstones of the group's expired offsets; returns whether none remains."""
    group_id = group.group_id
    none_left = not offsets.has_open_transaction(group_id)
    for topic, partitions in offsets.of_group(group_id).items():
        if group.is_subscribed_to(topic):
            none_left = False
            continue
        for index, committed in partitions.items():
            is_expired = _is_expired(committed, group, retention_ms, now_ms)
            if is_expired and not offsets.has_pending(group_id, topic, index):
                records.append(offset_tombstone(group_id, topic, index))
            else:
                none_left = False
    return none_left


def _is_expired(committed: CommittedOffset, group: Group, retention_ms: int, now_ms: int) -> bool:
    starts_ms = group.retention_starts_ms(committed.commit_timestamp_ms)
    if starts_ms is None:
        return False
    if committed.expire_timestamp_ms != NO_EXPIRY:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - starts_ms >= retention_ms
