"""What compaction asks of the kernels: where keys lie, which records are the latest, and a thinner body."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_values import NOW_MS, SAMPLE, each_kernel, record_lists

from penstock.wire.record_types import Record

SMALL_KEYS = st.none() | st.binary(max_size=2)


@each_kernel
@given(records=record_lists(gaps=True))
def test_keys_are_where_the_walk_finds_them(kernel: ModuleType, records: list[Record]) -> None:
    body = kernel.encode_records(records, 0, NOW_MS)
    keys = kernel.walk_keys(body, len(records))
    assert list(keys.offset_deltas) == [record.offset for record in records]
    assert list(keys.timestamp_deltas) == [record.timestamp - NOW_MS for record in records]
    assert list(keys.tombstones) == [record.value is None for record in records]
    found = [None if start < 0 else body[start:end] for start, end in zip(keys.key_starts, keys.key_ends, strict=True)]
    assert found == [record.key for record in records]
    assert list(keys.starts) == [0, *keys.ends][:-1]
    assert keys.ends[-1] == len(body)


@each_kernel
@given(records=record_lists(gaps=True), data=st.data())
def test_filtering_keeps_the_marked_records(kernel: ModuleType, records: list[Record], data: st.DataObject) -> None:
    body = kernel.encode_records(records, 0, NOW_MS)
    keep = bytes(data.draw(st.lists(st.integers(0, 2), min_size=len(records), max_size=len(records))))
    kept = [record for record, flag in zip(records, keep, strict=True) if flag]
    thinned = kernel.filter_records(body, keep)
    assert thinned == kernel.encode_records(kept, 0, NOW_MS)
    assert kernel.decode_records(thinned, len(kept), 0, NOW_MS) == kept


@each_kernel
@given(records=record_lists(), shift=st.integers(-(1 << 50), 1 << 50))
def test_filtering_can_move_the_base_timestamp(kernel: ModuleType, records: list[Record], shift: int) -> None:
    body = kernel.encode_records(records, 0, NOW_MS)
    moved = kernel.filter_records(body, b"\1" * len(records), shift)
    assert kernel.decode_records(moved, len(records), 0, NOW_MS - shift) == records


@each_kernel
def test_records_keep_their_attributes_when_they_move(kernel: ModuleType) -> None:
    body = b"\x0c\x5a\0\0\1\1\0"
    assert kernel.filter_records(body, b"\1", 64) == b"\x0e\x5a\x80\1\0\1\1\0"


@each_kernel
def test_a_shift_that_makes_every_number_longest_fits(kernel: ModuleType) -> None:
    records = [Record(i, 0, None, bytes(50)) for i in range(200)]
    body = kernel.encode_records(records, 0, 0)
    moved = kernel.filter_records(body, b"\1" * 200, -(1 << 63))
    assert len(moved) == len(body) + 200 * 10
    assert kernel.filter_records(moved, b"\1" * 200, -(1 << 63)) == body


@each_kernel
@given(batches=st.lists(st.lists(st.tuples(SMALL_KEYS, st.booleans()), min_size=1, max_size=8), max_size=6))
def test_compaction_leaves_the_latest_of_each_key(
    kernel: ModuleType, batches: list[list[tuple[bytes | None, bool]]]
) -> None:
    offsets = kernel.OffsetMap(24 * 100, bytes(range(16)))
    latest: dict[bytes, int] = {}
    bodies = []
    base = 1000
    for batch in batches:
        records = [Record(i, 0, key, b"v" if full else None) for i, (key, full) in enumerate(batch)]
        latest.update((key, base + i) for i, (key, _) in enumerate(batch) if key is not None)
        bodies.append((kernel.encode_records(records, 0, 0), batch, base))
        assert offsets.add(bodies[-1][0], len(batch), base)
        base += len(batch) + 3
    assert len(offsets) == len(latest)
    assert all(offsets.get(key) == offset for key, offset in latest.items())
    assert offsets.get(b"never written") == -1
    for body, batch, start in bodies:
        newest = [key is not None and latest[key] == start + i for i, (key, _) in enumerate(batch)]
        assert list(offsets.keep(body, len(batch), start)) == newest
        without = [is_newest and full for is_newest, (_, full) in zip(newest, batch, strict=True)]
        assert list(offsets.keep(body, len(batch), start, drop_tombstones=True)) == without


@each_kernel
def test_records_beyond_what_the_map_saw_are_kept(kernel: ModuleType) -> None:
    offsets = kernel.OffsetMap(2400)
    body = kernel.encode_records(SAMPLE, 0, NOW_MS)
    assert offsets.add(body, len(SAMPLE), 50)
    keyed = [record.key is not None for record in SAMPLE]
    assert list(offsets.keep(body, len(SAMPLE), 51)) == keyed
    assert list(offsets.keep(body, len(SAMPLE), 49)) == [False] * len(SAMPLE)
    # An older batch that comes later does not set a key back.
    assert offsets.add(body, len(SAMPLE), 10)
    assert offsets.get(b"key") == 50


@each_kernel
def test_a_full_map_takes_no_part_of_a_batch(kernel: ModuleType) -> None:
    offsets = kernel.OffsetMap(24 * 100)
    assert offsets.capacity == 75
    body = kernel.encode_records([Record(i, 0, b"%d" % i, b"") for i in range(50)], 0, 0)
    more = kernel.encode_records([Record(i, 0, b"x%d" % i, b"") for i in range(26)], 0, 0)
    assert offsets.add(body, 50, 0)
    assert not offsets.add(more, 26, 50)
    assert len(offsets) == 50
    assert offsets.get(b"x0") == -1
    fitting = kernel.encode_records([Record(i, 0, b"x%d" % i, b"") for i in range(25)], 0, 0)
    assert offsets.add(fitting, 25, 50)
    assert len(offsets) == 75
    assert [offsets.get(b"x%d" % i) for i in range(25)] == list(range(50, 75))
    assert [offsets.get(b"%d" % i) for i in range(50)] == list(range(50))


@each_kernel
def test_a_damaged_batch_leaves_the_map_alone(kernel: ModuleType) -> None:
    offsets = kernel.OffsetMap(2400)
    body = kernel.encode_records([Record(i, 0, b"%d" % i, b"") for i in range(5)], 0, 0)
    with pytest.raises(ValueError, match="past the end"):
        offsets.add(body[:-1], 5, 0)
    assert len(offsets) == 0


@each_kernel
def test_maps_and_offsets_that_make_no_sense_are_refused(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="sixteen"):
        kernel.OffsetMap(2400, b"short")
    with pytest.raises(ValueError, match="too few"):
        kernel.OffsetMap(24)
    for base_offset in (-1, (1 << 63) - 1):
        with pytest.raises(ValueError, match="no offset"):
            kernel.OffsetMap(2400).add(b"", 0, base_offset)
        with pytest.raises(ValueError, match="no offset"):
            kernel.OffsetMap(2400).keep(b"", 0, base_offset)
