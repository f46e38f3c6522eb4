"""Hot keys are found in little memory, and the error that is told is never exceeded."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from random import Random

import pytest

from penstock.core.hot_keys.sketch import HeavyKeys
from penstock.core.hot_keys.tally import KEY_BYTES_MAX, SHOWN_BYTES, HotKey, Tally
from penstock.wire.compression import Compression
from penstock.wire.records import Record, build_batch

SIZE_MAX = 1 << 24


def zipf(keys: int, count: int, exponent: float, random: Random) -> list[bytes]:
    weights = list(accumulate(1 / rank**exponent for rank in range(1, keys + 1)))
    return [b"key-%d" % number for number in random.choices(range(keys), cum_weights=weights, k=count)]


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.1, 1.6])
@pytest.mark.parametrize("counters", [10, 100])
def test_reported_bounds_hold_for_every_key(exponent: float, counters: int) -> None:
    random = Random(counters)
    drawn = zipf(5_000, 60_000, exponent, random)
    truth = Counter(drawn)
    sketch = HeavyKeys(counters)
    for start in range(0, len(drawn), 777):
        sketch.add(Counter(drawn[start : start + 777]))
    assert sketch.total == len(drawn)
    assert sketch.error * (counters + 1) <= len(drawn)
    for key, count in truth.items():
        assert sketch.weight(key) <= count <= sketch.weight(key) + sketch.error
    assert all(truth[key] >= weight > 0 for key, weight in sketch.heaviest(counters))


def test_with_a_zipf_load_the_hottest_come_in_their_order() -> None:
    drawn = zipf(50_000, 200_000, 1.2, Random(3))
    sketch = HeavyKeys(1_000)
    for start in range(0, len(drawn), 1_000):
        sketch.add(Counter(drawn[start : start + 1_000]))
    wanted = [key for key, _ in Counter(drawn).most_common(5)]
    assert [key for key, _ in sketch.heaviest(5)] == wanted


def test_memory_is_bounded_and_few_keys_are_counted_exactly() -> None:
    sketch = HeavyKeys(50)
    sketch.add({b"%d" % number: 1 + number for number in range(100)})
    assert (sketch.error, sketch.weight(b"99")) == (0, 100)
    for start in range(0, 10_000, 10):
        sketch.add({b"x%d" % number: 1 for number in range(start, start + 10)})
        assert len(list(sketch.heaviest(1_000))) <= 100
    assert sketch.error > 0


def batch(keys: list[bytes | None], base_offset: int = 0, compression: int = Compression.NONE) -> bytes:
    records = [Record(base_offset + number, 0, key, b"v" * 10) for number, key in enumerate(keys)]
    return build_batch(records, base_offset=base_offset, compression=compression)


@pytest.mark.parametrize("compression", list(Compression))
def test_batches_are_counted_from_an_offset_on(compression: int) -> None:
    tally = Tally()
    data = batch([b"a", b"a", b"b", None], 10, compression) + batch([b"a", b"c" * 50], 14, compression)
    tally.add(data, 11, SIZE_MAX)
    assert (tally.first_offset, tally.next_offset) == (11, 16)
    assert (tally.records, tally.keyless_records) == (5, 1)
    hottest = tally.hottest(2)
    assert [(one.key, one.records) for one in hottest] == [(b"a", 2), (b"c" * 50, 1)]
    assert hottest[1].size_bytes > hottest[0].size_bytes, "the heaviest by bytes are among them"
    assert sum(one.size_bytes for one in tally.hottest(9)) + tally.keyless_bytes == tally.size_bytes


def test_markers_of_transactions_are_not_records() -> None:
    tally = Tally()
    marker = build_batch([Record(0, 0, b"\0\0\0\1", b"")], control=True, transactional=True, producer_id=1)
    tally.add(marker, 0, SIZE_MAX)
    assert (tally.next_offset, tally.records) == (1, 0)


def test_long_keys_are_distinguished_and_cut() -> None:
    tally = Tally()
    long = b"k" * (KEY_BYTES_MAX + 100)
    tally.add(batch([long + b"1", long + b"1", long + b"2"]), 0, SIZE_MAX)
    assert [one[:3] for one in tally.hottest(9)] == [(b"k" * SHOWN_BYTES, True, 2), (b"k" * SHOWN_BYTES, True, 1)]
    assert all(isinstance(one, HotKey) for one in tally.hottest(1))
