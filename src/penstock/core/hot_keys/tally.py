"""Counts the records and bytes of each key in batches of a partition."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from penstock.core.hot_keys.sketch import HeavyKeys
from penstock.wire import kernel
from penstock.wire.record_types import Keys
from penstock.wire.records import check_crc, read_body, split_batches

# Beyond this a key is known by its beginning and a digest of all of it.
KEY_BYTES_MAX = 256
SHOWN_BYTES = 128
COUNTERS = 1_000
# So many different keys are in memory besides.
RECORDS_PER_STEP = 10_000


class HotKey(NamedTuple):
    """One key with what it has at least. Of a key that `is_cut` only the beginning is known."""

    key: bytes
    is_cut: bool
    records: int
    size_bytes: int


class Report(NamedTuple):
    """What was counted in one partition. Any figure of a key is too low by at most the error."""

    first_offset: int
    next_offset: int
    records: int
    size_bytes: int
    keyless_records: int
    keyless_bytes: int
    records_error: int
    bytes_error: int
    keys: list[HotKey]


class Tally:
    """What was counted in one partition; sizes are those of uncompressed records."""

    def __init__(self, counters: int = COUNTERS) -> None:
        self.by_records = HeavyKeys(counters)
        self.by_bytes = HeavyKeys(counters)
        self.keyless_records = 0
        self.keyless_bytes = 0
        self.first_offset = -1
        self.next_offset = -1

    @property
    def records(self) -> int:
        """All records that were counted, with and without keys."""
        return self.by_records.total + self.keyless_records

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return self.by_bytes.total + self.keyless_bytes

    def add(self, data: bytes, first_offset: int, size_max: int) -> None:
        """Count the records of whole batches from an offset on; `size_max` limits what a batch decompresses to.

        Raises BatchError.
        """
        for position, header in split_batches(data, len(data)):
            check_crc(data, position, header)
            if self.first_offset < 0:
                self.first_offset = max(first_offset, header.base_offset)
            self.next_offset = header.next_offset
            if not header.is_control:
                body = memoryview(read_body(data, position, header, size_max))
                keys = kernel.walk_keys(body, header.records_count)
                for start in range(0, header.records_count, RECORDS_PER_STEP):
                    self._add(body, keys, slice(start, start + RECORDS_PER_STEP), first_offset - header.base_offset)

    def _add(self, body: memoryview, keys: Keys, part: slice, least: int) -> None:
        records: dict[bytes, int] = {}
        sizes: dict[bytes, int] = {}
        columns = (keys.offset_deltas, keys.starts, keys.ends, keys.key_starts, keys.key_ends)
        for delta, start, end, key_start, key_end in zip(*(column[part] for column in columns), strict=True):
            if delta < least:
                continue
            if key_start < 0:
                self.keyless_records += 1
                self.keyless_bytes += end - start
                continue
            key = bytes(body[key_start:key_end])
            if len(key) > KEY_BYTES_MAX:
                key = key[:KEY_BYTES_MAX] + blake2b(key, digest_size=16).digest()
            records[key] = records.get(key, 0) + 1
            sizes[key] = sizes.get(key, 0) + end - start
        assert records.keys() == sizes.keys()
        self.by_records.add(records)
        self.by_bytes.add(sizes)

    def hottest(self, count: int) -> list[HotKey]:
        """The keys with the most records, and those with the most bytes."""
        keys = dict.fromkeys(key for key, _ in self.by_records.heaviest(count))
        keys |= dict.fromkeys(key for key, _ in self.by_bytes.heaviest(count))
        return [
            HotKey(key[:SHOWN_BYTES], len(key) > SHOWN_BYTES, self.by_records.weight(key), self.by_bytes.weight(key))
            for key in keys
        ]

    def report(self, keys_max: int) -> Report:
        """All of it, with the hottest keys."""
        return Report(
            self.first_offset,
            self.next_offset,
            self.records,
            self.size_bytes,
            self.keyless_records,
            self.keyless_bytes,
            self.by_records.error,
            self.by_bytes.error,
            self.hottest(keys_max),
        )
