"""Dead letters in the state machine: what is put aside, under which identity, and when that is over."""

from __future__ import annotations

from penstock.core.share.acknowledgements import Acknowledgement, AckType
from penstock.core.share.contract import DeadLetter, ShareSettings, Write
from penstock.core.share.partition import SharePartition
from penstock.core.share.runs import Reason, RecordState, StateBatch
from penstock.core.share.state_batches import combine

SETTINGS = ShareSettings(delivery_count_max=2, lock_ms=1_000, has_dead_letters=True)
ARCHIVING = RecordState.ARCHIVING


def partition(*batches: StateBatch, start: int = 0, settings: ShareSettings = SETTINGS) -> SharePartition:
    return SharePartition(start, batches, settings)


def said(share: SharePartition, first: int, last: int, kind: AckType, member: str = "a") -> Write:
    write = share.acknowledge(member, [Acknowledgement(first, last, [kind])], 0)
    assert write is not None
    return write


def stored(share: SharePartition, write: Write, producer_id: int = 7, sequence: int = 0) -> tuple[StateBatch, ...]:
    """Make a write durable, with identities for its letters; returns what was stored."""
    batches = []
    for batch in write.batches:
        if batch.state == ARCHIVING and batch.producer_id < 0:
            batch = batch._replace(producer_id=producer_id, sequence=sequence)
            sequence += batch.last - batch.first + 1
        batches.append(batch)
    share.settle(write.number, is_durable=True, batches=batches)
    return tuple(batches)


def test_a_rejected_record_is_put_aside_before_it_is_archived() -> None:
    share = partition()
    share.acquire("a", [(0, 3)], 100, 0)
    write = said(share, 1, 2, AckType.REJECT)
    assert write.batches == (StateBatch(1, 2, ARCHIVING, 1, reason=Reason.REJECTED, member="a"),)
    assert share.letters() == []
    stored(share, write, sequence=4)
    assert share.letters() == [
        DeadLetter(7, 4, 1, 1, Reason.REJECTED, "a"),
        DeadLetter(7, 5, 2, 1, Reason.REJECTED, "a"),
    ]
    stored(share, said(share, 0, 0, AckType.ACCEPT))
    stored(share, said(share, 3, 3, AckType.ACCEPT))
    assert (share.start, share.in_flight, share.next_offset()) == (1, 2, 4)
    archived = share.archive([1])
    assert archived is not None
    assert archived.batches == (StateBatch(1, 1, RecordState.ARCHIVED, 1),)
    assert [letter.offset for letter in share.letters()] == [2]
    stored(share, archived)
    assert share.start == 2
    archived = share.archive([2])
    assert archived is not None
    stored(share, archived)
    assert (share.start, share.has_letters) == (4, False)


def test_a_record_out_of_tries_is_put_aside() -> None:
    share = partition()
    for count, member in ((1, "a"), (2, "b")):
        assert share.acquire(member, [(0, 0)], 1, 0)[0].delivery_count == count
        write = share.expire(1_000)
        assert write is not None
        stored(share, write)
    assert share.letters() == [DeadLetter(7, 0, 0, 2, Reason.OUT_OF_TRIES, "b")]
    assert share.next_offset() == 1


def test_a_gap_is_no_dead_letter_and_neither_is_anything_without_a_topic() -> None:
    share = partition()
    share.acquire("a", [(0, 1)], 100, 0)
    assert said(share, 0, 0, AckType.GAP).batches[0].state == RecordState.ARCHIVED
    share.settings = ShareSettings()
    assert said(share, 1, 1, AckType.REJECT).batches[0].state == RecordState.ARCHIVED


def test_the_next_leader_finds_the_letters_with_their_identities() -> None:
    share = partition()
    share.acquire("a", [(0, 5)], 100, 0)
    batches = stored(share, said(share, 1, 4, AckType.REJECT), sequence=10)
    archived = share.archive([2])
    assert archived is not None
    state = combine(batches, archived.batches, 0)
    assert [(batch.first, batch.last, batch.sequence) for batch in state if batch.state == ARCHIVING] == [
        (1, 1, 10),
        (3, 4, 12),
    ]
    assert [(one.offset, one.sequence) for one in partition(*state).letters()] == [(1, 10), (3, 12), (4, 13)]


def test_a_letter_that_could_not_be_recorded_is_with_its_holder_again() -> None:
    share = partition()
    share.acquire("a", [(0, 1)], 100, 0)
    share.settle(said(share, 0, 1, AckType.REJECT).number, is_durable=False)
    assert (share.letters(), share.has_letters) == ([], False)
    stored(share, said(share, 0, 1, AckType.ACCEPT))
    assert share.start == 2


def test_an_archival_that_could_not_be_recorded_leaves_each_letter_its_sequence() -> None:
    share = partition()
    share.acquire("a", [(0, 4)], 100, 0)
    stored(share, said(share, 0, 4, AckType.REJECT))
    archived = share.archive([1, 2, 3])
    assert archived is not None
    share.settle(archived.number, is_durable=False)
    assert [(one.offset, one.sequence) for one in share.letters()] == [(n, n) for n in range(5)]


def test_letters_get_new_identities_when_the_old_ones_are_of_no_use() -> None:
    share = partition(StateBatch(0, 1, ARCHIVING, 1), StateBatch(2, 3, ARCHIVING, 2, 9, 5, Reason.REJECTED, "b"))
    assert [one.offset for one in share.letters()] == [2, 3]
    assert share.has_letters
    write = share.renew_letters()
    assert write is not None
    stored(share, write, producer_id=11)
    assert [(one.producer_id, one.sequence, one.offset, one.reason) for one in share.letters()] == [
        (9, 5, 2, Reason.REJECTED),
        (9, 6, 3, Reason.REJECTED),
        (11, 0, 0, Reason.REJECTED),
        (11, 1, 1, Reason.REJECTED),
    ]
    write = share.renew_letters(9)
    assert write is not None
    assert [one.offset for one in share.letters()] == [0, 1]
    stored(share, write, producer_id=12)
    assert [(one.producer_id, one.sequence, one.member) for one in share.letters()][2:] == [(12, 0, "b"), (12, 1, "b")]


def test_a_record_that_came_back_waits_longer_each_time() -> None:
    share = partition(settings=ShareSettings(delivery_count_max=5, backoff_ms=100, backoff_max_ms=250))
    for now_ms, wait_ms in ((0, 100), (1_000, 200), (2_000, 250)):
        share.acquire("a", [(0, 0)], 1, now_ms)
        write = share.acknowledge("a", [Acknowledgement(0, 0, [AckType.RELEASE])], now_ms)
        assert write is not None
        stored(share, write)
        assert share.next_offset() == 1
        assert share.next_deadline_ms == now_ms + wait_ms
        assert not share.wake(now_ms + wait_ms - 1)
        assert share.wake(now_ms + wait_ms)
        assert share.next_offset() == 0


def test_the_next_leader_lets_a_record_wait_that_came_back() -> None:
    settings = ShareSettings(backoff_ms=100)
    share = SharePartition(0, [StateBatch(0, 0, RecordState.AVAILABLE, 2)], settings, now_ms=5_000)
    assert (share.next_offset(), share.next_deadline_ms) == (1, 5_200)
