"""The file with a new cluster's first records, and batches of the metadata log that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.model.errors import ApiError
from penstock.runtime.raft.metadata_files import (
    BOOTSTRAP_FILE,
    decode_batches,
    encode_records,
    read_bootstrap,
    write_bootstrap,
)
from penstock.storage.files import OsFilesystem
from penstock.wire.messages.metadata_records import TopicRecord
from penstock.wire.records import CorruptBatch

RECORDS = [TopicRecord(f"topic-{number}", bytes([number]) * 16) for number in range(3)]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_first_records_are_between_a_header_and_a_footer(tmp_path: Path, count: int) -> None:
    filesystem = OsFilesystem()
    assert read_bootstrap(filesystem, tmp_path) == []
    write_bootstrap(filesystem, tmp_path, iter(RECORDS[:count]), 77)
    assert read_bootstrap(filesystem, tmp_path) == RECORDS[:count]
    batches = list(decode_batches((tmp_path / BOOTSTRAP_FILE).read_bytes(), "bootstrap"))
    # As a snapshot: each batch follows the one before.
    assert [batch.next_offset for batch in batches] == ([1, 2] if not count else [1, 1 + count, 2 + count])
    assert [len(batch.controls) for batch in batches] == ([1, 1] if not count else [1, 0, 1])
    assert sum(batch.size_bytes for batch in batches) == (tmp_path / BOOTSTRAP_FILE).stat().st_size


def test_a_batch_with_a_flipped_bit_is_not_decoded() -> None:
    data = bytearray(encode_records(RECORDS, 5, 1, 77))
    (batch,) = decode_batches(bytes(data), "log")
    assert (batch.next_offset, batch.size_bytes, batch.records) == (8, len(data), RECORDS)
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        list(decode_batches(bytes(data), "log"))


def test_a_record_may_be_as_large_as_the_limit() -> None:
    (record,) = RECORDS[:1]
    size = next(size for size in range(1, 200) if _fits(record, size))
    assert not _fits(record, size - 1)
    assert _fits(record, size + 1)


def _fits(record: TopicRecord, size: int) -> bool:
    try:
        encode_records([record], 0, 0, 0, size)
    except ApiError:
        return False
    return True
