"""Which segments a range is read from: overlaps, epochs, holes, and how plans are divided."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from bucket import PLACE

from penstock.core.tier.segments import EpochStart
from penstock.spark.fetching import OffsetRange
from penstock.spark.tier.sections import Plan, Section, find_sections, from_brokers, holds, runs_in_tier
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.producers.transaction_index import AbortedTransaction
from penstock.storage.tier.layout import LOG, Manifest, StoredObject

Lineage = Sequence[tuple[int, int]]
Found = list[tuple[int, int, int | None]]


def segment(number: int, start: int, end: int, lineage: Lineage = ((0, 0),)) -> Manifest:
    """A segment of the offsets from `start` to before `end`, copied by a leader with these epochs."""
    epochs = LeaderEpochs()
    for epoch, first in lineage:
        if first < end:
            epochs.assign(epoch, first)
    epochs.truncate_from_start(start)
    return Manifest(PLACE, bytes([number]) * 16, start, end - 1, 0, epochs.entries, 1, 0, {LOG: StoredObject(100, 0)})


def sections(manifests: Sequence[Manifest], lineage: Lineage, start: int, end: int) -> Found:
    """Where each part of a range lies, by the segments' numbers."""
    found = find_sections(manifests, [EpochStart(*one) for one in lineage], start, end)
    return [(one.start, one.end, one.segment.segment_id[0] if one.segment else None) for one in found]


def test_segments_that_follow_each_other() -> None:
    manifests = [segment(1, 0, 100), segment(2, 100, 200), segment(3, 200, 300)]
    assert sections(manifests, ((0, 0),), 0, 300) == [(0, 100, 1), (100, 200, 2), (200, 300, 3)]
    assert sections(manifests, ((0, 0),), 150, 160) == [(150, 160, 2)]
    assert sections(manifests, ((0, 0),), 199, 201) == [(199, 200, 2), (200, 201, 3)]
    assert sections(manifests, ((0, 0),), 50, 50) == []


def test_offsets_without_a_segment_are_read_from_the_brokers() -> None:
    manifests = [segment(1, 100, 200), segment(2, 300, 400)]
    assert sections(manifests, ((0, 0),), 50, 450) == [
        (50, 100, None),
        (100, 200, 1),
        (200, 300, None),
        (300, 400, 2),
        (400, 450, None),
    ]
    assert sections([], ((0, 0),), 5, 9) == [(5, 9, None)]


def test_segments_that_overlap_are_read_once() -> None:
    # The next leader rolled elsewhere, and copied 50 to 99 again.
    lineage = ((0, 0), (1, 80))
    manifests = [segment(1, 0, 100, lineage), segment(2, 50, 150, lineage), segment(3, 60, 70, lineage)]
    found = sections(manifests, lineage, 0, 150)
    assert [one[0] for one in found] == [0, *(one[1] for one in found[:-1])]
    assert found[-1][1] == 150
    assert None not in {one[2] for one in found}


def test_one_segment_with_several_epochs_is_read_at_once() -> None:
    lineage = ((0, 0), (3, 40), (7, 60))
    assert sections([segment(1, 0, 100, lineage)], lineage, 10, 90) == [(10, 90, 1)]


def test_records_lost_in_an_unclean_election_are_not_read() -> None:
    # Epoch 1 got as far as 199; the leader of epoch 2 had only up to 120, and has copied up to 159.
    lost = segment(1, 0, 200, ((0, 0), (1, 100)))
    kept = segment(2, 120, 160, ((0, 0), (1, 100), (2, 120)))
    lineage = ((0, 0), (1, 100), (2, 120))
    assert sections([lost, kept], lineage, 0, 200) == [(0, 120, 1), (120, 160, 2), (160, 200, None)]
    # Before it has copied anything, too.
    assert sections([lost], lineage, 0, 200) == [(0, 120, 1), (120, 200, None)]


def test_segments_of_foreign_epochs_are_not_read() -> None:
    assert sections([segment(1, 0, 100, ((4, 0),))], ((0, 0), (5, 50)), 0, 100) == [(0, 100, None)]
    # It continues with an epoch of its own.
    assert sections([segment(1, 0, 100, ((0, 0), (4, 70)))], ((0, 0),), 0, 100) == [(0, 70, 1), (70, 100, None)]


def test_segment_holds_a_record_of_its_epochs_only() -> None:
    copied = segment(1, 10, 100, ((0, 0), (4, 70)))
    assert holds(copied, EpochStart(0, 69))
    assert holds(copied, EpochStart(4, 99))
    assert not holds(copied, EpochStart(0, 70))
    assert not holds(copied, EpochStart(4, 69))
    assert not holds(copied, EpochStart(4, 100))
    assert not holds(copied, EpochStart(0, 9))


@pytest.mark.parametrize("seed", range(40))
def test_every_record_comes_from_a_segment_that_has_it(seed: int) -> None:
    """Leaders of random epochs cut each other's logs back and copy what they like."""
    random = Random(seed)
    log: list[int] = []
    manifests: list[tuple[Manifest, list[int]]] = []
    for epoch in range(1, 8):
        del log[random.randint(len(log) // 2, len(log)) :]
        log += [epoch] * random.randint(0, 30)
        lineage = [(one, log.index(one)) for one in dict.fromkeys(log)]
        for _ in range(random.randint(0, 3)):
            if len(log) > 2:
                start = random.randrange(len(log) - 1)
                end = random.randint(start + 1, len(log))
                manifests.append((segment(len(manifests) + 1, start, end, lineage), list(log)))
    lineage = [(one, log.index(one)) for one in dict.fromkeys(log)]
    having: dict[int, set[bytes]] = {offset: set() for offset in range(len(log))}
    for manifest, as_copied in manifests:
        for offset in range(manifest.start_offset, min(manifest.end_offset + 1, len(log))):
            if as_copied[offset] == log[offset]:
                having[offset].add(manifest.segment_id)
    found = find_sections([one for one, _ in manifests], [EpochStart(*one) for one in lineage], 0, len(log))
    assert [offset for one in found for offset in range(one.start, one.end)] == list(range(len(log)))
    for one in found:
        for offset in range(one.start, one.end):
            if one.segment is None:
                assert not having[offset]
            else:
                assert one.segment.segment_id in having[offset]


def test_plans_are_divided_between_tasks() -> None:
    copied = segment(1, 0, 100)
    aborted = (AbortedTransaction(7, 10, 20, 21), AbortedTransaction(8, 40, 60, 61))
    plan = Plan(OffsetRange("t", 0, 0, 150), (Section(0, 100, copied), Section(100, 150)), aborted)
    first, second = plan.part(OffsetRange("t", 0, 0, 40)), plan.part(OffsetRange("t", 0, 40, 150))
    assert (first.sections, first.aborted) == ((Section(0, 40, copied),), aborted[:1])
    assert (second.sections, second.aborted) == ((Section(40, 100, copied), Section(100, 150)), aborted[1:])
    assert plan.part(plan.wanted) == plan
    assert from_brokers(plan.wanted).sections == (Section(0, 150),)


def test_consecutive_offsets_in_the_tier() -> None:
    one, other = segment(1, 0, 10), segment(2, 10, 20)
    found = [Section(0, 10, one), Section(10, 20, other), Section(20, 30), Section(30, 40, one), Section(40, 50)]
    assert runs_in_tier(found) == [(0, 20), (30, 40)]
