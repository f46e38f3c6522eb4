"""The share coordinator: the stored state of the share-partitions of one partition of `__share_group_state`.

A share-partition is initialized by its group's coordinator, with a state epoch that grows each time it begins anew.
The broker that leads the partition reads the state with its leader epoch, and from then on writes what becomes of the
records. A leader with a lower epoch than the one stored is fenced, and so is a write that comes after a later one
of its leader: a connection that broke may still deliver a request that was repeated on another one long ago. For the
same reason the state epoch of a deleted share-partition is remembered for as long as the log has its tombstone, and it
begins anew only in a higher one.

The log has a snapshot of each share-partition, and updates that each say what changed since; after so many updates the
next record is a snapshot again. Updates share one key, so the log is never compacted: everything before the oldest
snapshot that still counts may be deleted (`redundant_before`). Share-partitions that are seldom written get a snapshot
from time to time, or they would keep the log from being cut.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.core.contract import Effects, Record, Reply, TimerKey, Token
from penstock.core.share.runs import NO_DELAY, NO_DELAYS, Delays, StateBatch
from penstock.core.share.state_batches import combine, overlay
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, Uuid, format_uuid, parse_uuid
from penstock.wire.messages import share_state_records as stored
from penstock.wire.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)

NO_EPOCH = -1
# A share-partition whose start offset is not known yet: `share.auto.offset.reset` decides when it is first read.
NO_OFFSET = -1
# How many records are finished when they were not counted.
NO_COUNT = -1
# A leader numbers its writes on from what it has read, so far above those that may still be on their way.
NUMBERS_PER_READ = 1 << 20
# After so many snapshots others get their turn.
SNAPSHOTS_PER_TURN = 50

StoredRecord = tuple[bytes, bytes | None]


class ShareKey(NamedTuple):
    """One partition as one share group reads it."""

    group: str
    topic_id: Uuid
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The name by which its coordinator is found."""
        return f"{self.group}:{format_uuid(self.topic_id)}:{self.partition}"

    @staticmethod
    def parse(text: str) -> ShareKey:
        """Read a coordinator key; raises ValueError for anything else. A group's name may have colons in it."""
        group, topic_id, partition = text.rsplit(":", 2)
        if not group or not partition.isdecimal():
            raise ValueError(f"{text!r} does not name a group, a topic id and a partition")
        return ShareKey(group, parse_uuid(topic_id), int(partition))


@dataclass(frozen=True, slots=True)
class ShareState:
    """What is stored of a share-partition."""

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_OFFSET
    finished_count: int = NO_COUNT
    batches: tuple[StateBatch, ...] = ()
    delays: Delays = NO_DELAYS
    snapshot_epoch: int = 0
    created_ms: int = 0
    written_ms: int = 0
    # How many updates have come after the snapshot, and where that is.
    update_count: int = 0
    snapshot_offset: int = -1
    # Of the last write; 0 where leaders do not number them.
    write_number: int = 0


# The state that is shown of a share-partition without any.
UNINITIALIZED = ShareState(finished_count=NO_COUNT)


class Answer(NamedTuple):
    """What a request about one share-partition is answered."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: ShareState = UNINITIALIZED


class StateWrite(NamedTuple):
    """A leader's word about some records; a start of NO_OFFSET leaves the start where it is."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    finished_count: int
    batches: tuple[StateBatch, ...]
    delays: Delays = NO_DELAYS
    write_number: int = 0


class ShareStateShard:
    """Every event returns the effects that the shell must carry out; replies are `Answer`s.

    `partition_count` is how many partitions a topic has, None for one that does not exist.
    """

    def __init__(self, updates_per_snapshot: int, partition_count: Callable[[Uuid], int | None]) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self._partition_count = partition_count
        self._states: dict[ShareKey, ShareState] = {}
        # The state epochs of deleted share-partitions, and the offsets of their tombstones.
        self._deleted: dict[ShareKey, tuple[int, int]] = {}

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int, token: Token, now_ms: int) -> Effects:
        """Begin, or begin anew in a higher state epoch: nothing of the former state remains."""
        before = self._states.get(key)
        deleted_epoch, _ = self._deleted.get(key, (NO_EPOCH, -1))
        lowest = before.state_epoch if before is not None else deleted_epoch + 1
        if NO_EPOCH < state_epoch < lowest:
            return _refused(token, ErrorCode.FENCED_STATE_EPOCH, _FENCED_STATE.format(lowest, state_epoch))
        if self._is_unknown(key):
            return _refused(token, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_PARTITION)
        if before is not None and before.state_epoch == state_epoch and before.write_number:
            # A leader has it, and no group begins anew while it has members: the request was repeated, and comes late.
            return Effects(replies=[Reply(token, Answer(state=before))])
        snapshot_epoch = 0 if before is None else before.snapshot_epoch + 1
        finished_count = NO_COUNT if start_offset == NO_OFFSET else 0
        after = ShareState(state_epoch, 0, start_offset, finished_count, (), NO_DELAYS, snapshot_epoch, now_ms, now_ms)
        return Effects(records=[_snapshot(key, after)], replies=[Reply(token, Answer(state=after))])

    def read(self, key: ShareKey, leader_epoch: int, token: Token, now_ms: int) -> Effects:
        """The state; the leader that reads it fences its predecessors, and its own earlier writes."""
        before = self._states.get(key)
        if before is None:
            return _refused(token, ErrorCode.INVALID_REQUEST, _NOT_INITIALIZED)
        if NO_EPOCH < leader_epoch < before.leader_epoch:
            return _refused(
                token, ErrorCode.FENCED_LEADER_EPOCH, _FENCED_LEADER.format(before.leader_epoch, leader_epoch)
            )
        if self._is_unknown(key):
            return _refused(token, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_PARTITION)
        if leader_epoch == NO_EPOCH:
            return Effects(replies=[Reply(token, Answer(state=before))])
        change = StateWrite(
            before.state_epoch,
            leader_epoch,
            before.start_offset,
            before.finished_count,
            (),
            before.delays,
            before.write_number + NUMBERS_PER_READ,
        )
        return Effects(
            records=[self._record(key, before, change, now_ms)],
            replies=[Reply(token, Answer(state=_changed(before, change)))],
        )

    def write(self, key: ShareKey, change: StateWrite, token: Token, now_ms: int) -> Effects:
        """What became of some records."""
        before = self._states.get(key)
        if before is None:
            return _refused(token, ErrorCode.INVALID_REQUEST, _NOT_INITIALIZED)
        if NO_EPOCH < change.leader_epoch < before.leader_epoch:
            return _refused(
                token, ErrorCode.FENCED_LEADER_EPOCH, _FENCED_LEADER.format(before.leader_epoch, change.leader_epoch)
            )
        if change.state_epoch not in (NO_EPOCH, before.state_epoch):
            # A higher one is that of a group of the same name, which was deleted.
            return _refused(
                token, ErrorCode.FENCED_STATE_EPOCH, _FENCED_STATE.format(before.state_epoch, change.state_epoch)
            )
        if change.write_number and not before.write_number:
            return _refused(token, ErrorCode.FENCED_STATE_EPOCH, _UNREAD)
        if 0 < change.write_number < before.write_number:
            return _refused(token, ErrorCode.FENCED_STATE_EPOCH, _LATE.format(change.write_number, before.write_number))
        if self._is_unknown(key):
            return _refused(token, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_PARTITION)
        record = self._record(key, before, change, now_ms)
        return Effects(records=[record], replies=[Reply(token, Answer())])

    def delete(self, key: ShareKey, state_epoch: int, token: Token) -> Effects:
        """Forget a share-partition, if it has not begun anew since; one that is not there is forgotten already."""
        before = self._states.get(key)
        if before is not None and NO_EPOCH < state_epoch < before.state_epoch:
            return _refused(token, ErrorCode.FENCED_STATE_EPOCH, _FENCED_STATE.format(before.state_epoch, state_epoch))
        effects = Effects(replies=[Reply(token, Answer())])
        if before is not None:
            effects.records.append(Record(ShareSnapshotKey(*key), None))
        return effects

    def summary(self, key: ShareKey) -> Answer:
        """A share-partition in numbers; one without a state has no start yet, and the state epoch of the former one."""
        if self._is_unknown(key):
            return Answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_PARTITION)
        state = self._states.get(key)
        if state is None:
            deleted_epoch, _ = self._deleted.get(key, (UNINITIALIZED.state_epoch, -1))
            state = replace(UNINITIALIZED, state_epoch=deleted_epoch)
        return Answer(state=state)

    def topics_deleted(self, topic_ids: Collection[Uuid]) -> Effects:
        """The share-partitions of deleted topics are forgotten."""
        gone = [key for key in self._states if key.topic_id in topic_ids]
        return Effects(records=[Record(ShareSnapshotKey(*key), None) for key in gone])

    def snapshot_cold(self, before_ms: int, now_ms: int) -> Iterator[Effects]:
        """Write a snapshot of each share-partition whose last one is from before `before_ms`.

        A few at a time: each piece is to be carried out before the next one is requested.
        """
        cold = [key for key, state in self._states.items() if state.written_ms < before_ms]
        for start in range(0, len(cold), SNAPSHOTS_PER_TURN):
            found = [(key, self._states.get(key)) for key in cold[start : start + SNAPSHOTS_PER_TURN]]
            yield Effects(
                records=[_snapshot(key, _snapshotted(state, now_ms)) for key, state in found if state is not None]
            )

    def redundant_before(self, end_offset: int) -> int:
        """The offset before which nothing in the log counts any more; `end_offset` is where the log ends."""
        return min((state.snapshot_offset for state in self._states.values()), default=end_offset)

    def cut(self, start_offset: int) -> None:
        """The log begins here now; what was deleted before that is forgotten."""
        self._deleted = {key: gone for key, gone in self._deleted.items() if gone[1] >= start_offset}

    def load(self, records: Iterable[StoredRecord]) -> list[StoredRecord]:
        """Stored records are all decoded and replayed."""
        return [*records]

    def replay(self, key: Any, value: Any, offset: int = -1, producer_id: int = NO_PRODUCER_ID) -> None:  # noqa: ARG002
        """Apply one record."""
        if isinstance(key, ShareSnapshotKey):
            name = ShareKey(*key)
            if value is None:
                before = self._states.pop(name, None)
                # The id of a topic that is gone does not come back.
                if before is not None and self._partition_count(name.topic_id) is not None:
                    self._deleted[name] = before.state_epoch, offset
            else:
                self._deleted.pop(name, None)
                self._states[name] = _from_snapshot(value, offset)
        elif isinstance(key, ShareUpdateKey) and value is not None:
            name = ShareKey(*key)
            before = self._states.get(name)
            if before is not None:
                # An update without its snapshot is of a share-partition that was deleted meanwhile.
                self._states[name] = _updated(before, value)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """The coordinator's log has no transactions in it."""

    def loaded(self, now_ms: int) -> Effects:  # noqa: ARG002
        """Share-partitions of topics that were deleted while no coordinator was loaded are forgotten.

        A state is only written for a topic that exists, and this broker has all of the metadata up to the election that
        made it the coordinator: a topic that it does not know is gone.
        """
        gone = [key for key in self._states if self._partition_count(key.topic_id) is None]
        return Effects(records=[Record(ShareSnapshotKey(*key), None) for key in gone])

    def timer_fired(self, key: TimerKey, now_ms: int) -> Effects:  # noqa: ARG002
        """There are no timers."""
        return Effects()

    def unloaded(self) -> Effects:
        """No request waits here except for its commit."""
        return Effects()

    def _is_unknown(self, key: ShareKey) -> bool:
        count = self._partition_count(key.topic_id)
        return count is None or not 0 <= key.partition < count

    def _record(self, key: ShareKey, before: ShareState, change: StateWrite, now_ms: int) -> Record:
        if before.update_count >= self._updates_per_snapshot:
            return _snapshot(key, _snapshotted(_changed(before, change), now_ms))
        leader_epoch = before.leader_epoch if change.leader_epoch == NO_EPOCH else change.leader_epoch
        value = ShareUpdateValue(
            before.snapshot_epoch,
            leader_epoch,
            change.start_offset,
            change.finished_count,
            # What is finished stays in it: it may end something that was stored as unfinished before the start.
            [stored.StateBatch(*batch) for batch in overlay((), change.batches, _floor(change))],
            *change.delays,
            change.write_number,
        )
        return Record(ShareUpdateKey(*key), value)


_NO_PARTITION = "there is no such topic or partition"
_NOT_INITIALIZED = "the share-partition was not initialized"
_FENCED_STATE = "the state epoch is {}, not {}"
_FENCED_LEADER = "the leader epoch is {}, not {}"
_UNREAD = "the state has begun anew since the leader read it"
_LATE = "write {} comes after write {} of the same leader"


def _refused(token: Token, error: ErrorCode, message: str) -> Effects:
    return Effects(replies=[Reply(token, Answer(error, message))])


def _changed(before: ShareState, change: StateWrite) -> ShareState:
    start = max(before.start_offset, change.start_offset)
    delays = before.delays if change.start_offset == NO_OFFSET else change.delays
    return replace(
        before,
        state_epoch=max(before.state_epoch, change.state_epoch),
        leader_epoch=max(before.leader_epoch, change.leader_epoch),
        start_offset=start,
        finished_count=change.finished_count,
        batches=combine(before.batches, change.batches, start, delays.start if delays.start != NO_DELAY else start),
        delays=delays,
        write_number=max(before.write_number, change.write_number),
    )


def _floor(change: StateWrite) -> int:
    """The offset before which a change has nothing to say."""
    return change.start_offset if change.delays.start == NO_DELAY else change.delays.start


def _snapshotted(state: ShareState, now_ms: int) -> ShareState:
    return replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_ms=now_ms)


def _snapshot(key: ShareKey, state: ShareState) -> Record:
    value = ShareSnapshotValue(
        state.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.finished_count,
        state.created_ms,
        state.written_ms,
        [stored.StateBatch(*batch) for batch in state.batches],
        *state.delays,
        state.write_number,
    )
    return Record(ShareSnapshotKey(*key), value)


def _from_snapshot(value: ShareSnapshotValue, offset: int) -> ShareState:
    return ShareState(
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        tuple(StateBatch(*batch) for batch in value.state_batches),
        _delays_of(value),
        value.snapshot_epoch,
        value.create_timestamp,
        value.write_timestamp,
        snapshot_offset=offset,
        write_number=value.write_number,
    )


def _updated(before: ShareState, value: ShareUpdateValue) -> ShareState:
    change = StateWrite(
        before.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        tuple(StateBatch(*batch) for batch in value.state_batches),
        _delays_of(value),
        value.write_number,
    )
    return replace(_changed(before, change), update_count=before.update_count + 1)


def _delays_of(value: ShareSnapshotValue | ShareUpdateValue) -> Delays:
    return Delays(value.delays_start, value.delays_due_ms, value.delays_offset)
