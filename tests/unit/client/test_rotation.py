"""Records without a key: every partition gets its share, a batch at a time."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from penstock.client.rotation import BATCH_BYTES, PartitionRotation, rotation_for

PARTITIONS = (0, 1, 2, 3)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_spread_batch_by_batch() -> None:
    rotation = PartitionRotation(0.005, Clock())
    chosen = [rotation.choose("t", PARTITIONS, 100) for _ in range(8 * 164)]
    assert Counter(chosen) == dict.fromkeys(PARTITIONS, 2 * 164)
    assert [len(list(run)) for _, run in groupby(chosen)] == [164] * 8
    assert 163 * 100 < BATCH_BYTES <= 164 * 100


def test_a_slow_producer_goes_from_partition_to_partition() -> None:
    clock = Clock()
    rotation = PartitionRotation(0.005, clock)
    chosen = []
    for _ in range(12):
        chosen.append(rotation.choose("t", PARTITIONS, 100))
        clock.now += 0.005
    assert chosen == [*chosen[:4]] * 3
    assert set(chosen) == set(PARTITIONS)


def test_records_without_a_value_take_turns_too_and_topics_do_not_mind_each_other() -> None:
    rotation = PartitionRotation(60, Clock())
    chosen = {rotation.choose("t", (7,), 0) for _ in range(BATCH_BYTES + 1)}
    assert chosen == {7}
    assert {rotation.choose("u", PARTITIONS, 0) for _ in range(4 * BATCH_BYTES)} == set(PARTITIONS)


def test_only_the_partitions_that_are_given_are_chosen() -> None:
    clock = Clock()
    rotation = PartitionRotation(0.001, clock)
    for partitions in (PARTITIONS, (0, 2), (1,), (0, 1, 2, 3, 4)):
        found = set()
        for _ in range(10):
            found.add(rotation.choose("t", partitions, 10))
            clock.now += 1
        assert found == set(partitions)


def test_several_runs_do_not_all_begin_with_the_same_partition() -> None:
    assert {PartitionRotation(1).choose("t", PARTITIONS, 1) for _ in range(200)} == set(PARTITIONS)


def test_a_configured_partitioner_chooses_instead() -> None:
    assert rotation_for({}, 5) is not None
    assert rotation_for({"partitioner": "consistent"}, 5) is None
    assert rotation_for({"sticky.partitioning.linger.ms": "0"}, 5) is None
