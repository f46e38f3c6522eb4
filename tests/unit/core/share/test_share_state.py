"""The share coordinator's state: by example, and held against a model of single offsets."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock.core.contract import Effects, Record
from penstock.core.share.runs import RecordState, StateBatch
from penstock.core.share.state import NO_COUNT, NO_EPOCH, NO_OFFSET, Answer, ShareKey, ShareStateShard, StateWrite
from penstock.core.share.state_batches import combine
from penstock.model.errors import ErrorCode
from penstock.wire.messages.share_state_records import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey

TOPIC = bytes(range(16))
KEY = ShareKey("g", TOPIC, 1)
DONE, FREE = RecordState.ACKNOWLEDGED, RecordState.AVAILABLE


class Log:
    """A shard with its log, as the shell keeps it."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.records: list[Record] = []
        self.limit = updates_per_snapshot
        self.shard = self._new()

    def _new(self) -> ShareStateShard:
        return ShareStateShard(self.limit, lambda topic_id: 3 if topic_id == TOPIC else None)

    def perform(self, effects: Effects) -> Any:
        for record in effects.records:
            self.shard.replay(record.key, record.value, len(self.records))
            self.records.append(record)
        return effects.replies[0].response if effects.replies else None

    def initialize(self, state_epoch: int = 0, start: int = NO_OFFSET, key: ShareKey = KEY) -> Answer:
        answer: Answer = self.perform(self.shard.initialize(key, state_epoch, start, "token", 7))
        return answer

    def read(self, leader_epoch: int = NO_EPOCH) -> Answer:
        answer: Answer = self.perform(self.shard.read(KEY, leader_epoch, "token", 7))
        return answer

    def write(
        self, *batches: StateBatch, start: int = 0, state_epoch: int = 0, leader_epoch: int = 0, number: int = 0
    ) -> Answer:
        change = StateWrite(state_epoch, leader_epoch, start, 3, batches, write_number=number)
        answer: Answer = self.perform(self.shard.write(KEY, change, "token", 8))
        return answer

    def reload(self, start: int = 0) -> ShareStateShard:
        """Another shard, from the log."""
        shard = self._new()
        for offset, record in enumerate(self.records):
            if offset >= start:
                shard.replay(record.key, record.value, offset)
        return shard


def test_a_share_partition_must_be_initialized_before_it_is_read_or_written() -> None:
    log = Log()
    assert log.read().error is ErrorCode.INVALID_REQUEST
    assert log.write().error is ErrorCode.INVALID_REQUEST
    summary = log.shard.summary(KEY).state
    assert (summary.state_epoch, summary.start_offset, summary.finished_count) == (0, NO_OFFSET, NO_COUNT)
    assert log.initialize(start=5).error is ErrorCode.NONE
    assert (log.read().state.start_offset, log.read().state.batches) == (5, ())
    assert log.records[0].key == ShareSnapshotKey(*KEY)


def test_unknown_topics_and_partitions_are_refused() -> None:
    log = Log()
    for key in (ShareKey("g", bytes(16), 0), ShareKey("g", TOPIC, 3), ShareKey("g", TOPIC, -1)):
        assert log.initialize(key=key).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert log.shard.summary(key).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert log.records == []


def test_earlier_leaders_and_state_epochs_are_fenced() -> None:
    log = Log()
    log.initialize(2)
    assert log.read(4).error is ErrorCode.NONE
    assert log.shard.summary(KEY).state.leader_epoch == 4
    assert len(log.records) == 2
    # A reader that does not lead only looks.
    assert log.read().error is ErrorCode.NONE
    assert len(log.records) == 2
    assert log.read(3).error is ErrorCode.FENCED_LEADER_EPOCH
    assert log.write(state_epoch=2, leader_epoch=3).error is ErrorCode.FENCED_LEADER_EPOCH
    assert log.write(state_epoch=1, leader_epoch=4).error is ErrorCode.FENCED_STATE_EPOCH
    assert log.initialize(1).error is ErrorCode.FENCED_STATE_EPOCH
    assert log.write(state_epoch=2, leader_epoch=4).error is ErrorCode.NONE
    assert log.initialize(3, 70).error is ErrorCode.NONE
    assert log.write(state_epoch=2, leader_epoch=4).error is ErrorCode.FENCED_STATE_EPOCH
    assert (log.read().state.start_offset, log.read().state.batches) == (70, ())


@pytest.mark.parametrize("updates_per_snapshot", [1, 500])
def test_a_write_that_comes_after_a_later_one_of_its_leader_is_refused(updates_per_snapshot: int) -> None:
    log = Log(updates_per_snapshot)
    log.initialize(0, 0)
    first = log.read(4).state.write_number + 1
    for number in (first, first + 1):
        # The same write again, as after a connection that broke, is fine.
        for _ in range(2):
            batch = StateBatch(3, 3, FREE, number - first + 1)
            assert log.write(batch, leader_epoch=4, number=number).error is ErrorCode.NONE
    for shard in (log.shard, log.reload()):
        log.shard = shard
        late = log.write(StateBatch(3, 3, FREE, 1), leader_epoch=4, number=first)
        assert late.error is ErrorCode.FENCED_STATE_EPOCH
        assert late.message == f"write {first} comes after write {first + 1} of the same leader"
        assert log.read().state.batches == (StateBatch(3, 3, FREE, 2),)
    # A broker that does not number its writes yet is believed.
    assert log.write(StateBatch(3, 3, FREE, 3), leader_epoch=4).error is ErrorCode.NONE


def test_a_leader_that_reads_again_fences_what_it_wrote_before() -> None:
    log = Log()
    log.initialize(0, 0)
    lost = log.read(4).state.write_number + 1
    first = log.read(4).state.write_number + 1
    assert log.write(StateBatch(3, 3, FREE, 1), leader_epoch=4, number=lost).error is ErrorCode.FENCED_STATE_EPOCH
    assert log.write(StateBatch(3, 3, FREE, 1), leader_epoch=4, number=first).error is ErrorCode.NONE


def test_a_request_to_begin_that_comes_late_undoes_nothing() -> None:
    log = Log()
    for start in (0, 5):
        assert log.initialize(3, start).error is ErrorCode.NONE
    assert log.read().state.start_offset == 5
    log.read(4)
    log.write(StateBatch(9, 9, DONE, 1), start=9, state_epoch=3, leader_epoch=4)
    assert log.initialize(3, 5).error is ErrorCode.NONE
    assert (log.read().state.start_offset, log.read().state.batches) == (9, (StateBatch(9, 9, DONE, 1),))
    assert log.initialize(4, 5).error is ErrorCode.NONE
    assert (log.read().state.start_offset, log.read().state.batches) == (5, ())


def test_a_request_to_delete_that_comes_late_deletes_nothing_that_has_begun_anew() -> None:
    log = Log()
    log.initialize(4, 5)
    late = log.perform(log.shard.delete(KEY, 3, "token"))
    assert (late.error, late.message) == (ErrorCode.FENCED_STATE_EPOCH, "the state epoch is 4, not 3")
    assert log.read().state.start_offset == 5
    # Brokers of earlier versions do not say.
    for epoch in (4, NO_EPOCH):
        assert log.perform(log.shard.delete(KEY, epoch, "token")).error is ErrorCode.NONE
        assert log.read().error is ErrorCode.INVALID_REQUEST
        log.initialize(4, 5)


@pytest.mark.parametrize("epoch", [2, 7])
def test_a_leader_of_an_earlier_group_of_that_name_changes_nothing(epoch: int) -> None:
    """Its group was deleted and founded again long ago: the epochs are lower now, or happen to be the same."""
    log = Log()
    log.initialize(7, 0)
    number = log.read(4).state.write_number + 1
    log.perform(log.shard.delete(KEY, 7, "token"))
    log.shard.cut(len(log.records))
    log.initialize(epoch, 50)
    for shard in (log.shard, log.reload()):
        log.shard = shard
        late = log.write(StateBatch(3, 3, DONE, 1), start=3, state_epoch=7, leader_epoch=4, number=number)
        assert late.error is ErrorCode.FENCED_STATE_EPOCH
        assert (log.read().state.start_offset, log.read().state.batches) == (50, ())
    number = log.read(4).state.write_number + 1
    assert log.write(start=51, state_epoch=epoch, leader_epoch=4, number=number).error is ErrorCode.NONE


def test_what_was_deleted_is_not_begun_anew_by_a_request_that_comes_late() -> None:
    log = Log()
    log.initialize(7, 0)
    log.perform(log.shard.delete(KEY, 7, "token"))
    for shard in (log.shard, log.reload()):
        log.shard = shard
        for epoch in (0, 6, 7):
            assert log.initialize(epoch, 0).error is ErrorCode.FENCED_STATE_EPOCH
        assert log.read().error is ErrorCode.INVALID_REQUEST
        summary = shard.summary(KEY).state
        assert (summary.state_epoch, summary.start_offset, summary.finished_count) == (7, NO_OFFSET, NO_COUNT)
    assert log.initialize(8, 50).error is ErrorCode.NONE
    for shard in (log.shard, log.reload()):
        assert shard.summary(KEY).state.state_epoch == 8


def test_a_deletion_is_forgotten_with_its_tombstone() -> None:
    log = Log()
    log.initialize(7, 0)
    log.perform(log.shard.delete(KEY, 7, "token"))
    log.shard.cut(1)
    assert log.initialize(7, 0).error is ErrorCode.FENCED_STATE_EPOCH
    log.shard.cut(2)
    log.shard = log.reload(2)
    assert log.initialize(1, 5).error is ErrorCode.NONE


def test_updates_are_laid_over_the_snapshot_and_become_one_in_time() -> None:
    log = Log(2)
    log.initialize(0, 0)
    log.write(StateBatch(0, 9, FREE, 1))
    log.write(StateBatch(3, 4, DONE, 2))
    assert log.read().state.batches == (
        StateBatch(0, 2, FREE, 1),
        StateBatch(3, 4, DONE, 2),
        StateBatch(5, 9, FREE, 1),
    )
    log.write(StateBatch(0, 2, DONE, 2), start=5)
    assert [type(record.key) for record in log.records] == [
        ShareSnapshotKey,
        ShareUpdateKey,
        ShareUpdateKey,
        ShareSnapshotKey,
    ]
    value = log.records[-1].value
    assert isinstance(value, ShareSnapshotValue)
    assert (value.snapshot_epoch, value.start_offset, value.delivery_complete_count) == (1, 5, 3)
    assert log.read().state.batches == (StateBatch(5, 9, FREE, 1),)
    log.write(StateBatch(5, 5, DONE, 2), start=NO_OFFSET)
    assert (type(log.records[-1].key), log.read().state.start_offset) == (ShareUpdateKey, 5)


def test_what_is_deleted_is_gone_after_a_reload_too() -> None:
    log = Log()
    log.initialize()
    log.write(StateBatch(0, 0, DONE, 1))
    log.perform(log.shard.delete(KEY, NO_EPOCH, "token"))
    assert log.read().error is ErrorCode.INVALID_REQUEST
    assert log.reload().summary(KEY).state.start_offset == NO_OFFSET
    # Of the deleted share-partition an update may be all that is left of the log.
    assert log.reload(1).summary(KEY).state.start_offset == NO_OFFSET
    count = len(log.records)
    assert log.perform(log.shard.delete(KEY, NO_EPOCH, "token")).error is ErrorCode.NONE
    assert len(log.records) == count
    log.initialize()
    log.perform(log.shard.topics_deleted({TOPIC}))
    assert log.records[-1] == Record(ShareSnapshotKey(*KEY), None)


def test_the_log_may_be_cut_before_the_oldest_snapshot() -> None:
    log = Log()
    assert log.shard.redundant_before(9) == 9
    other = KEY._replace(partition=0)
    log.initialize(key=other)
    log.initialize()
    log.write(StateBatch(0, 4, DONE, 1))
    assert log.shard.redundant_before(9) == 0
    assert [*log.shard.snapshot_cold(7, 50)] == []
    assert log.shard.redundant_before(9) == 0
    (cold,) = log.shard.snapshot_cold(8, 50)
    log.perform(cold)
    assert log.shard.redundant_before(9) == 3
    assert log.reload(3).summary(KEY) == log.shard.summary(KEY)


@pytest.mark.parametrize("seed", range(30))
def test_a_reloaded_shard_knows_what_was_written(seed: int) -> None:
    random = Random(seed)
    log = Log(random.choice((0, 1, 5)))
    log.initialize(0, 0)
    model: dict[int, tuple[int, int]] = {}
    start = 0
    for _ in range(80):
        batches = []
        for _ in range(random.randrange(1, 4)):
            first = start + random.randrange(0, 30)
            batch = StateBatch(first, first + random.randrange(0, 10), random.choice((0, 2, 4)), random.randrange(1, 3))
            batches.append(batch)
            model.update(dict.fromkeys(range(batch.first, batch.last + 1), batch[2:]))
        start += random.choice((0, 0, 0, 7))
        log.write(*batches, start=start)
        shard = random.choice((log.shard, log.reload(log.shard.redundant_before(0))))
        state = shard.summary(KEY).state
        found = {offset: batch[2:] for batch in state.batches for offset in range(batch.first, batch.last + 1)}
        assert found == {offset: said for offset, said in model.items() if offset >= start}
        assert state.start_offset == start
        assert list(state.batches) == sorted(state.batches)


def test_equal_neighbouring_batches_are_joined() -> None:
    before = (StateBatch(0, 4, FREE, 1), StateBatch(10, 14, FREE, 1))
    assert combine(before, [StateBatch(5, 9, FREE, 1)], 2) == (StateBatch(2, 14, FREE, 1),)


def test_a_key_is_found_again_in_its_name() -> None:
    key = ShareKey("a:b", TOPIC, 12)
    assert ShareKey.parse(key.coordinator_key) == key
    for text in ("g:t:1", ":AAECAwQFBgcICQoLDA0ODw:1", "g:AAECAwQFBgcICQoLDA0ODw:x"):
        with pytest.raises(ValueError, match="not"):
            ShareKey.parse(text)
