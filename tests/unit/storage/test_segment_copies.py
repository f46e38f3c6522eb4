"""Copies of segments for object storage: what is checked, and producers whose snapshot is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c
from log_support import NOW_MS, LogMaker, append

from penstock.core.replica.producer_state import AppendedBatch, ProducerEntry
from penstock.storage import segment_copy
from penstock.storage.files import CorruptLogError, OsFilesystem
from penstock.storage.producers.snapshot import decode_snapshot, encode_snapshot
from penstock.storage.segment_copy import TierCopy
from penstock.storage.settings import LogSettings

SECOND = 20


def copy_of_second_segment(logs: LogMaker) -> TierCopy:
    """Producer 7 has written the first segment, producer 8 the second one."""
    logs.settings = LogSettings(index_interval_bytes=200)
    log = logs.open()
    for producer_id in (7, 8):
        for sequence in range(SECOND):
            append(log, b"x" * 10, producer_id=producer_id, producer_epoch=0, sequence=sequence)
        log.roll(0)
    copy = log.tier_copy(SECOND)
    assert copy is not None
    log.close()
    return copy


def producers(snapshot: bytes) -> dict[int, int]:
    """The last sequence of each producer."""
    return {entry.producer_id: entry.last_sequence for entry in decode_snapshot(snapshot)}


def test_a_sound_snapshot_is_copied_as_it_is(logs: LogMaker) -> None:
    copy = copy_of_second_segment(logs)
    assert producers(copy.snapshot) == {7: SECOND - 1, 8: SECOND - 1}
    assert copy.sound_snapshot() == copy.snapshot
    # Whatever the log file has: the snapshot may know of producers that are in neither.
    other = encode_snapshot([ProducerEntry(9, 0, 0, 0, -1, (AppendedBatch(0, 3, 0, 3, 0),))])
    assert copy._replace(snapshot=other).sound_snapshot() == other


@pytest.mark.parametrize("damage", [b"", b"\0" * 30])
def test_a_lost_snapshot_is_made_anew_from_the_earlier_one_and_the_segment(logs: LogMaker, damage: bytes) -> None:
    copy = copy_of_second_segment(logs)
    assert producers(copy.earlier_snapshot) == {7: SECOND - 1}
    made = copy._replace(snapshot=damage).sound_snapshot()
    assert producers(made) == {7: SECOND - 1, 8: SECOND - 1}
    # Without the earlier one producers of before are forgotten.
    assert producers(copy._replace(snapshot=damage, earlier_snapshot=damage).sound_snapshot()) == {8: SECOND - 1}


def test_a_snapshot_that_is_made_anew_has_the_time_of_the_appends(logs: LogMaker) -> None:
    """With the time of old records, a replica that began with it took its producers for expired."""
    copy = copy_of_second_segment(logs)
    made = {entry.producer_id: entry for entry in decode_snapshot(copy._replace(snapshot=b"").sound_snapshot())}
    assert made[8].last_timestamp == OsFilesystem().modified_ms(copy.log_path) > NOW_MS + SECOND


def test_a_copy_has_the_checksum_of_its_whole_file_in_pieces_of_any_size(
    logs: LogMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_of_second_segment(logs)
    data = copy.log_path.read_bytes()
    for size in (1, 100, 150, 1_000, 1 << 20):
        monkeypatch.setattr(segment_copy, "CHECKED_BYTES", size)
        assert copy.checked_crc() == crc32c(data)


@pytest.mark.parametrize("cut", [False, True])
def test_a_damaged_segment_is_not_copied(logs: LogMaker, monkeypatch: pytest.MonkeyPatch, cut: bool) -> None:
    monkeypatch.setattr(segment_copy, "CHECKED_BYTES", 150)
    copy = copy_of_second_segment(logs)
    path: Path = copy.log_path
    data = bytearray(path.read_bytes())
    if cut:
        data = data[:-1]
    else:
        data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLogError):
        copy.checked_crc()
