"""Finding segments in a bucket and reading them: pieces, parts, damage, deletion, aborted transactions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from bucket import PLACE, Bucket, aborted_index, batch, marker

from penstock.core.tier.segments import EpochStart
from penstock.spark.tier import reading
from penstock.spark.tier.catalog import Catalog
from penstock.spark.tier.reading import DamagedSegment, aborted_filter, read_segment
from penstock.spark.tier.sections import Section
from penstock.spark.tier.store import BlockingStore, TierSettings, shared_store
from penstock.storage.producers.transaction_index import AbortedTransaction
from penstock.storage.tier.layout import EPOCHS, INDEX, LOG, TRANSACTION_INDEX, Manifest, Seal, SealedObject
from penstock.storage.tier.object_store import StoreError
from penstock.wire.records import ControlType


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", 250)


@pytest.fixture(scope="module")
def shared() -> Iterator[BlockingStore]:
    """The thread in which requests run."""
    store = BlockingStore(Bucket().store)
    yield store
    store.close()


def find(catalog: Catalog, tier_end: tuple[int, int], start: int, end: int) -> list[tuple[int, int, int | None]]:
    """The sections, with the segments' numbers; `tier_end` is an offset and its epoch."""
    at = EpochStart(tier_end[1], tier_end[0])
    found = asyncio.run(catalog.sections(PLACE, at, start, end))
    return [(one.start, one.end, one.segment.segment_id[0] if one.segment else None) for one in found]


def offsets(
    shared: BlockingStore, bucket: Bucket, segment: Manifest, start: int, end: int, aborted: Sequence[Any] = ()
) -> list[int]:
    """The offsets of the records that are read."""
    shared.store = bucket.store
    skip = aborted_filter(aborted)
    found: list[int] = []
    for decoded in read_segment(shared, segment, start, end, headers=False, skip=skip):
        found += memoryview(decoded.columns.offsets).cast("q").tolist()
        assert decoded.next_offset == found[-1] + 1
    return found


def test_only_needed_manifests_are_read(bucket: Bucket) -> None:
    for start in range(0, 1000, 100):
        bucket.add(start, start + 100)
    catalog = Catalog(bucket.store)
    assert find(catalog, (999, 0), 250, 420) == [(250, 300, 3), (300, 400, 4), (400, 420, 5)]
    read = [path for path in bucket.store.reads if path.endswith(".manifest.json")]
    # The three, and the one with the leader epochs.
    assert len(read) == len(set(read)) == 4
    bucket.store.reads.clear()
    assert find(catalog, (999, 0), 320, 350) == [(320, 350, 4)]
    # More was copied meanwhile by the same leader: that needs no new listing.
    bucket.add(1000, 1100)
    assert find(catalog, (1099, 0), 350, 1000)[-1] == (900, 1000, 10)
    assert len(bucket.store.listed) == 1
    assert find(catalog, (1099, 0), 950, 1050) == [(950, 1000, 10), (1000, 1050, 11)]
    assert len(bucket.store.listed) == 2


def test_segments_without_a_manifest_are_ignored(bucket: Bucket) -> None:
    bucket.add(0, 100)
    unfinished = bucket.add(100, 200)
    bucket.add(200, 300)
    del bucket.store.objects[PLACE.manifest(100, unfinished.segment_id)]
    assert find(Catalog(bucket.store), (299, 0), 0, 300) == [(0, 100, 1), (100, 200, None), (200, 300, 3)]


def test_compressed_or_encrypted_segments_are_read_from_the_brokers(bucket: Bucket) -> None:
    bucket.add(0, 100)
    sealed = bucket.add(100, 200)
    bucket.add(200, 300)
    seal = Seal("zstd", "", b"", 1000, {kind: SealedObject(9, (5,)) for kind in sealed.objects})
    bucket.store.objects[PLACE.manifest(100, sealed.segment_id)] = replace(sealed, seal=seal).to_bytes()
    catalog = Catalog(bucket.store)
    for _ in range(2):
        assert find(catalog, (299, 0), 0, 300) == [(0, 100, 1), (100, 200, None), (200, 300, 3)]
    assert len([path for path in bucket.store.reads if path.endswith(".manifest.json")]) == 3


def test_segments_that_brokers_report_but_the_store_lacks(bucket: Bucket) -> None:
    bucket.add(0, 100)
    assert find(Catalog(bucket.store), (199, 0), 0, 100) == [(0, 100, None)]
    with pytest.raises(StoreError, match=r"tier\.url must be"):
        find(Catalog(Bucket().store), (99, 0), 0, 100)
    # Of another epoch: the record at 99 that consumers read is not this one.
    assert find(Catalog(bucket.store), (99, 1), 0, 100) == [(0, 100, None)]


def test_leader_epochs_choose_among_overlapping_segments(bucket: Bucket) -> None:
    before = ((0, 0), (1, 60))
    bucket.add(0, 90, before)
    bucket.add(90, 150, before)
    after = ((0, 0), (1, 60), (2, 75))
    bucket.add(75, 160, after)
    assert find(Catalog(bucket.store), (159, 2), 0, 120) == [(0, 75, 1), (75, 120, 3)]
    # As long as the first leader's log is the log, its copies are read.
    assert find(Catalog(bucket.store), (149, 1), 0, 150) == [(0, 90, 1), (90, 150, 2)]
    catalog = Catalog(bucket.store)
    find(catalog, (149, 1), 0, 120)
    assert find(catalog, (159, 2), 0, 120) == [(0, 75, 1), (75, 120, 3)]


def test_a_long_segment_under_short_ones_is_found(bucket: Bucket) -> None:
    bucket.add(0, 100)
    bucket.add(30, 40)
    bucket.add(45, 50)
    found = find(Catalog(bucket.store), (99, 0), 47, 100)
    assert found[0][0] == 47
    assert found[-1][1:] == (100, 1)
    assert None not in {one[2] for one in found}


def test_damaged_or_deleted_companions_are_reported(bucket: Bucket) -> None:
    segment = bucket.add(0, 100)
    name = PLACE.object(0, segment.segment_id, EPOCHS)
    sound = bucket.store.objects[name]
    bucket.store.objects[name] = sound.replace(b"0", b"1")
    with pytest.raises(StoreError, match="checksum"):
        find(Catalog(bucket.store), (99, 0), 0, 100)
    bucket.lose(segment, EPOCHS)
    with pytest.raises(FileNotFoundError):
        find(Catalog(bucket.store), (99, 0), 0, 100)


def test_aborted_transactions_of_sections(bucket: Bucket) -> None:
    first = bucket.add(0, 100, **aborted_index((7, 10, 20), (8, 30, 90)))
    second = bucket.add(100, 200, **aborted_index((7, 50, 120), (9, 150, 180)))
    plain = bucket.add(200, 300)
    catalog = Catalog(bucket.store)

    def aborted(*sections: Section) -> list[tuple[int, int, int]]:
        return sorted(one[:3] for one in asyncio.run(catalog.aborted(sections)))

    everything = [Section(0, 100, first), Section(100, 200, second), Section(200, 300, plain), Section(300, 400)]
    assert aborted(*everything) == [(7, 10, 20), (7, 50, 120), (8, 30, 90), (9, 150, 180)]
    # Later aborts are read from the brokers: this copy may contain records after the section that were lost.
    assert aborted(Section(0, 50, first), Section(100, 150, second)) == [(7, 10, 20), (7, 50, 120)]
    bucket.lose(second, TRANSACTION_INDEX)
    with pytest.raises(FileNotFoundError):
        aborted(*everything)


def test_every_part_of_a_segment(bucket: Bucket, shared: BlockingStore) -> None:
    segment = bucket.add(10, 110)
    for start in (10, 11, 42, 60, 109):
        for end in (start + 1, 61, 109, 110):
            assert offsets(shared, bucket, segment, start, end) == list(range(start, end))


def test_a_part_is_not_read_as_a_whole(bucket: Bucket, shared: BlockingStore) -> None:
    segment = bucket.add(0, 3000)
    size = segment.objects[LOG].size_bytes
    assert offsets(shared, bucket, segment, 1500, 1510) == list(range(1500, 1510))
    log_reads = [path for path in bucket.store.reads if path.endswith(".log")]
    assert len(log_reads) * reading.PIECE_BYTES < size / 10
    bucket.store.reads.clear()
    # The whole one needs no index.
    assert len(offsets(shared, bucket, segment, 0, 3000)) == 3000
    assert not [path for path in bucket.store.reads if path.endswith(".index")]


def test_a_batch_may_be_larger_than_a_piece(bucket: Bucket, shared: BlockingStore) -> None:
    log = batch(0, 2, 0) + batch(2, 100, 0) + batch(102, 2, 0)
    assert offsets(shared, bucket, bucket.put(0, 104, log), 0, 104) == list(range(104))


def test_damaged_batches_are_reported(bucket: Bucket, shared: BlockingStore) -> None:
    segment = bucket.add(0, 100)
    name = PLACE.object(0, segment.segment_id, LOG)
    sound = bucket.store.objects[name]
    bucket.store.objects[name] = sound[:700] + bytes([sound[700] ^ 1]) + sound[701:]
    with pytest.raises(DamagedSegment, match=r"\.log is damaged at byte \d+: .*CRC"):
        offsets(shared, bucket, segment, 0, 100)
    bucket.store.objects[name] = sound[:-10]
    with pytest.raises(StoreError, match=r"of \d+ bytes"):
        offsets(shared, bucket, segment, 0, 100)
    cut = bucket.put(100, 110, batch(100, 5, 0) + batch(105, 5, 0)[:-10])
    with pytest.raises(DamagedSegment, match="cut short"):
        offsets(shared, bucket, cut, 100, 110)
    index = PLACE.object(0, segment.segment_id, INDEX)
    bucket.store.objects[index] = b"\1" * len(bucket.store.objects[index])
    with pytest.raises(StoreError, match="checksum"):
        offsets(shared, bucket, segment, 50, 60)


def test_a_deleted_segment_is_not_found(bucket: Bucket, shared: BlockingStore) -> None:
    segment = bucket.add(0, 100)
    bucket.lose(segment, LOG)
    with pytest.raises(FileNotFoundError):
        offsets(shared, bucket, segment, 0, 100)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(StoreError, match=r"penstock\[tier\]"):
        shared_store(TierSettings("file:///not/there"))


def test_records_of_aborted_transactions_are_left_out(bucket: Bucket, shared: BlockingStore) -> None:
    log = b"".join(
        (
            batch(0, 2, 0, producer=7),
            batch(2, 2, 0),
            batch(4, 2, 0, producer=8),
            marker(6, 7, ControlType.ABORT),
            batch(7, 2, 0, producer=7),
            marker(9, 7, ControlType.COMMIT),
            batch(10, 2, 0, producer=8),
            batch(12, 2, 0, producer=7),
        )
    )
    segment = bucket.put(0, 14, log)
    assert offsets(shared, bucket, segment, 0, 14) == [0, 1, 2, 3, 4, 5, 7, 8, 10, 11, 12, 13]
    ended = AbortedTransaction(7, 0, 6, 7)
    assert offsets(shared, bucket, segment, 0, 14, [ended]) == [2, 3, 4, 5, 7, 8, 10, 11, 12, 13]
    # Two that continue after the segment, one of which starts before it.
    later = [AbortedTransaction(8, -5, 99, 99), AbortedTransaction(7, 12, 99, 99)]
    assert offsets(shared, bucket, segment, 0, 14, [ended, *later]) == [2, 3, 7, 8]
