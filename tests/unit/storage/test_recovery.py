"""Opening a log again: after an orderly stop, a kill -9, a torn write, rotten bits, lost index files."""

from __future__ import annotations

import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_support import NOW_MS, LogMaker, Stored, append, headers_of, make_batch, make_marker, read_all

from penstock.core.replica.producer_state import ProducerEntry
from penstock.model.errors import ErrorCode
from penstock.storage.files import CorruptLogError, OsFilesystem
from penstock.storage.log import Log
from penstock.storage.settings import LogSettings


def fill(log: Log, count: int, size: int = 150) -> None:
    for number in range(count):
        append(log, b"%05d" % number + b"." * size, timestamp=NOW_MS + number)


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def positions(log: Log, segment: int = -1) -> list[int]:
    """Where the batches of a segment start, and its end."""
    data = log._segments[segment].file.read(0, log._segments[segment].size)
    starts = [0]
    for header in headers_of(data):
        starts.append(starts[-1] + header.size_bytes)
    return starts


def test_a_clean_stop_needs_no_scan(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 40)
    log = logs.restart(log)
    assert log.recovery.segments_scanned == 0
    assert (log.end_offset, log.flushed_offset) == (40, 40)
    assert len(read_all(log)) == 40
    assert append(log, b"more") == 40


def test_stopping_and_starting_an_idle_log_writes_nothing(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 40)
    log.close()
    before = {path.name: path.stat().st_mtime_ns for path in logs.directory.iterdir()}
    logs.restart(logs.open(clean=True, recovery_point=40)).close()
    assert {path.name: path.stat().st_mtime_ns for path in logs.directory.iterdir()} == before


def test_after_a_kill_everything_written_is_there(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 40)
    log = logs.crash(log)
    assert log.recovery.bytes_truncated == 0
    assert [record.offset for record in read_all(log)] == list(range(40))


def test_only_segments_from_the_recovery_point_on_are_scanned(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 20)
    log.flush()
    fill(log, 20)
    segments_behind = sum(facts.end_offset <= 20 for facts in log.segment_facts())
    assert segments_behind > 0
    count = log.segment_count
    log = logs.crash(log)
    assert log.recovery.segments_scanned == count - segments_behind
    assert log.flushed_offset == 20


def test_a_tail_cut_at_any_byte_ends_at_the_last_whole_batch(logs: LogMaker) -> None:
    logs.settings = LogSettings(index_interval_bytes=100)
    log = logs.open()
    for value in (b"first", b"second", b"third"):
        append(log, value, producer_id=7, producer_epoch=0, sequence=log.end_offset)
    path = logs.directory / log._active.name
    starts = positions(log)
    log.close(clean=False)
    data = path.read_bytes()
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        for snapshot in logs.directory.glob("*.snapshot"):
            snapshot.unlink()
        log = logs.open()
        whole = sum(start <= size for start in starts[1:])
        assert log.end_offset == whole
        assert path.stat().st_size == starts[whole]
        assert log.recovery.bytes_truncated == size - starts[whole]
        entry = log.producers.get(7)
        assert (entry.last_sequence if entry else -1) == whole - 1
        log.close(clean=False)


def test_a_flipped_bit_in_the_unflushed_tail_ends_the_log_there(logs: LogMaker) -> None:
    logs.settings = LogSettings(index_interval_bytes=100)
    log = logs.open()
    fill(log, 6, size=10)
    starts = positions(log)
    path = logs.directory / log._active.name
    log.close(clean=False)
    data = path.read_bytes()
    randomness = random.Random(1)
    # Base offset and leader epoch lie outside the checksum; the rest of the fourth batch does not.
    for position in [starts[3] + 16, *(randomness.randrange(starts[3] + 17, starts[4]) for _ in range(60))]:
        path.write_bytes(data)
        flip(path, position, randomness.randrange(8))
        log = logs.open()
        assert log.end_offset == 3
        assert path.stat().st_size == starts[3]
        log.close(clean=False)


def test_segments_after_a_damaged_unflushed_batch_are_removed(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 40)
    count = log.segment_count
    first = log.segment_facts()[1]
    path = logs.directory / log._segments[1].name
    log.close(clean=False)
    flip(path, 300)
    log = logs.open()
    assert first.base_offset < log.end_offset < first.end_offset
    assert log.segment_count == 2
    assert log.recovery.segments_removed == count - 2
    assert len(logs.files(".log")) == 2
    assert [record.offset for record in read_all(log)] == list(range(log.end_offset))


def test_a_damaged_batch_before_the_recovery_point_cuts_nothing(logs: LogMaker) -> None:
    logs.settings = LogSettings(index_interval_bytes=200)
    log = logs.open()
    fill(log, 10)
    log.flush()
    fill(log, 2)
    starts = positions(log)
    path = logs.directory / log._active.name
    log.close(clean=False)
    flip(path, starts[4] + 80)
    log = logs.open(recovery_point=10)
    assert log.end_offset == 12
    assert log.recovery.bytes_truncated == 0
    assert len(log.recovery.damaged) == 1
    assert path.stat().st_size == starts[-1]
    assert [record.offset for record in read_all(log, 0, offset_max=4)] == [0, 1, 2, 3]
    with pytest.raises(CorruptLogError):
        log.read(4, 1000).read()
    assert [record.offset for record in read_all(log, 5)] == list(range(5, 12))


def test_lost_structure_before_the_recovery_point_refuses_to_open_and_changes_nothing(logs: LogMaker) -> None:
    logs.settings = LogSettings(index_interval_bytes=200)
    log = logs.open()
    fill(log, 10)
    log.flush()
    starts = positions(log)
    path = logs.directory / log._active.name
    log.close(clean=False)
    flip(path, starts[4] + 9, 5)
    before = path.read_bytes()
    with pytest.raises(CorruptLogError) as caught:
        logs.open(recovery_point=10)
    assert str(path) in caught.value.message
    assert path.read_bytes() == before


def test_a_length_that_takes_in_what_lies_behind_does_not_shorten_the_log(logs: LogMaker) -> None:
    logs.settings = LogSettings(index_interval_bytes=200)
    log = logs.open()
    fill(log, 10)
    log.flush()
    starts = positions(log)
    path = logs.directory / log._active.name
    log.close(clean=False)
    data = bytearray(path.read_bytes())
    # The batch seems to end within the last one, with fewer bytes behind it than a batch has.
    data[starts[4] + 8 : starts[4] + 12] = (starts[-1] - starts[4] - 12 - 20).to_bytes(4)
    path.write_bytes(data)
    with pytest.raises(CorruptLogError):
        logs.open(recovery_point=10)
    assert path.read_bytes() == data


@pytest.mark.parametrize("lost_power", [False, True])
def test_a_damaged_last_batch_that_was_durable_is_a_torn_tail_only_after_a_power_failure(
    logs: LogMaker, lost_power: bool
) -> None:
    log = logs.open()
    fill(log, 3)
    log.flush()
    starts = positions(log)
    path = logs.directory / log._active.name
    log.close(clean=False)
    flip(path, starts[2] + 9, 5)
    if lost_power:
        assert logs.open(recovery_point=3).end_offset == 2
        return
    before = path.read_bytes()
    with pytest.raises(CorruptLogError):
        logs.open(recovery_point=3, lost_power=False)
    assert path.read_bytes() == before


@pytest.mark.parametrize("byte", [80, 9])
def test_damage_before_a_gap_of_a_compacted_log_removes_no_later_segment(logs: LogMaker, byte: int) -> None:
    log = logs.open()
    fill(log, 3)
    starts, path = positions(log), logs.directory / log._active.name
    log.end_offset = 10
    log.roll(NOW_MS)
    fill(log, 2)
    log.flush()
    log.close(clean=False)
    flip(path, starts[2] + byte, 5)
    names = logs.files(".log")
    if byte == 9:
        with pytest.raises(CorruptLogError):
            logs.open(recovery_point=7)
    else:
        assert logs.open(recovery_point=7, lost_power=False).end_offset == 12
    assert logs.files(".log") == names


def test_unwritten_space_after_the_last_batch_is_cut_wherever_the_recovery_point_is(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 3)
    path = logs.directory / log._active.name
    size = log.size_bytes
    log.close(clean=False)
    with path.open("ab") as file:
        file.write(bytes(10_000))
    log = logs.open(recovery_point=100)
    assert (log.end_offset, log.size_bytes, path.stat().st_size) == (3, size, size)


def test_preallocated_segments_are_trimmed_when_they_are_finished(logs: LogMaker) -> None:
    logs.settings = LogSettings(segment_bytes=2000, preallocate=True)
    log = logs.open()
    fill(log, 12)
    sizes = [(logs.directory / name).stat().st_size for name in logs.files(".log")]
    assert sizes[-1] == 2000
    assert sizes[0] == log.segment_facts()[0].size_bytes
    log = logs.crash(log)
    assert log.end_offset == 12
    log = logs.restart(log)
    assert log.recovery.segments_scanned == 0
    assert len(read_all(log)) == 12


@pytest.mark.parametrize("restart", [False, True])
def test_a_flipped_bit_in_a_closed_segment_is_never_served(logs: LogMaker, restart: bool) -> None:
    log = logs.open()
    fill(log, 40)
    if restart:
        log = logs.restart(log)
    starts = positions(log, 0)
    flip(logs.directory / log._segments[0].name, starts[3] + 100)
    assert [record.offset for record in read_all(log, 0, offset_max=3)] == [0, 1, 2]
    assert [header.base_offset for header in headers_of(log.read(1, 10_000).read())] == [1, 2]
    with pytest.raises(CorruptLogError) as caught:
        log.read(3, 10_000).read()
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (caught.value.path.name, caught.value.position) == (log._segments[0].name, starts[3])
    assert [record.offset for record in read_all(log, 4)] == list(range(4, 40))


@pytest.mark.parametrize("batch", [1, 5, 8, -1])
def test_a_broken_chain_in_a_closed_segment_hides_only_its_own_stretch(logs: LogMaker, batch: int) -> None:
    """A batch's length is damaged: what lies before it and behind the next index entry stays readable."""
    logs.settings = LogSettings(segment_bytes=4000, index_interval_bytes=400)
    log = logs.open()
    fill(log, 40)
    log = logs.restart(log)
    starts = positions(log, 0)
    number = range(len(starts) - 1)[batch]
    flip(logs.directory / log._segments[0].name, starts[number] + 9)
    assert [record.offset for record in read_all(log, 0, offset_max=number)] == list(range(number))
    with pytest.raises(CorruptLogError):
        log.read(number, 10_000).read()
    behind = min(number + 4, len(starts) - 1)
    assert [record.offset for record in read_all(log, behind)] == list(range(behind, 40))


def test_a_flipped_bit_in_what_was_there_before_a_clean_start_is_never_served(logs: LogMaker) -> None:
    """The newest segment was not read through either; only what is appended from now on is known to be good."""
    logs.settings = LogSettings()
    log = logs.open()
    fill(log, 5)
    starts = positions(log)
    log.close()
    flip(logs.directory / log._active.name, starts[2] + 100)
    log = logs.open(clean=True, recovery_point=5)
    append(log, b"new")
    with pytest.raises(CorruptLogError):
        log.read(2, 10_000).read()
    assert read_all(log, 5) == [Stored(5, b"new")]
    assert not log.read(5, 1000).must_verify


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "odd", "zeros", "swapped", "shifted"])
@pytest.mark.parametrize("clean", [True, False])
def test_an_index_that_does_not_fit_is_built_again(logs: LogMaker, suffix: str, damage: str, clean: bool) -> None:
    log = logs.open()
    fill(log, 40)
    log.close()
    entry = 8 if suffix == ".index" else 12
    good = {name: (logs.directory / name).read_bytes() for name in logs.files(suffix)}
    for name, data in good.items():
        path = logs.directory / name
        entries = [data[at : at + entry] for at in range(0, len(data), entry)]
        if damage == "missing":
            path.unlink()
        elif damage == "shifted" and suffix == ".index":
            path.write_bytes(b"".join(each[:7] + bytes([each[7] ^ 1]) for each in entries))
        else:
            path.write_bytes(
                {
                    "empty": b"",
                    "cut": b"".join(entries[:1]),
                    "odd": data[:-3],
                    "zeros": bytes(len(data)),
                    "swapped": b"".join(reversed(entries)),
                    "shifted": data,
                }[damage]
            )
    log = logs.open(clean=clean, recovery_point=40)
    assert [record.offset for record in read_all(log)] == list(range(40))
    assert [record.offset for record in read_all(log, 13)] == list(range(13, 40))
    found = log.offset_for_timestamp(NOW_MS + 21)
    assert found is not None
    assert (found.offset, found.timestamp) == (21, NOW_MS + 21)
    latest = log.max_timestamp()
    assert latest is not None
    assert latest.offset == 39
    log.close()
    assert {name: (logs.directory / name).read_bytes() for name in logs.files(suffix)} == good


def test_index_files_without_a_log_and_leftovers_are_removed(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 3)
    log.close()
    keep = logs.files()
    for name in (
        "00000000000000000100.index",
        "00000000000000000100.timeindex",
        "00000000000000000000.log.deleted",
        "00000000000000000002.log.cleaned",
        "leader-epoch-checkpoint.tmp",
    ):
        (logs.directory / name).write_bytes(b"x")
    (logs.directory / "something else.log").write_bytes(b"left alone")
    logs.open(clean=True, recovery_point=3)
    assert logs.files() == sorted([*keep, "something else.log"])


def test_a_swap_that_was_interrupted_is_finished(logs: LogMaker) -> None:
    """Compaction wrote a segment in place of the first two, and the process died before they were gone."""
    log = logs.open()
    fill(log, 40)
    second, third = log.segment_facts()[1:3]
    log.close()
    swap = make_batch(0, [b"compacted"]) + make_batch(second.end_offset - 1, [b"compacted too"])
    (logs.directory / "00000000000000000000.log.swap").write_bytes(swap)
    log = logs.open(clean=True, recovery_point=40)
    assert [facts.base_offset for facts in log.segment_facts()][:2] == [0, third.base_offset]
    expected = [0, second.end_offset - 1, *range(third.base_offset, 40)]
    assert [record.offset for record in read_all(log)] == expected
    assert not logs.files(".swap")


def test_producers_survive_a_stop_and_a_kill(logs: LogMaker) -> None:
    log = logs.open()
    for sequence in range(30):
        append(log, b"x" * 150, producer_id=9, producer_epoch=2, sequence=sequence)
    for reopen in (logs.restart, logs.crash):
        log = reopen(log)
        entry = log.producers.get(9)
        assert entry is not None
        assert (entry.producer_epoch, entry.last_sequence, entry.last_offset) == (2, 29, 29)


def without_times(log: Log) -> dict[int, ProducerEntry]:
    """The producers; when they last appended is not in the log."""
    return {entry.producer_id: replace(entry, last_timestamp=0) for entry in log.producers.entries}


@given(
    st.lists(
        st.tuples(
            st.integers(-1, 2), st.integers(1, 3), st.sampled_from(["data", "data", "data", "inside", "end", "bump"])
        ),
        max_size=40,
    )
)
@settings(max_examples=40, deadline=None)
def test_producers_found_by_a_scan_are_the_ones_that_were_noted(steps: list[tuple[int, int, str]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        logs = LogMaker(Path(directory))
        logs.settings = LogSettings()
        log = logs.open()
        epochs, sequences = [0, 0, 0], [0, 0, 0]
        for producer, count, kind in steps:
            if producer < 0:
                append(log, *[b"x"] * count)
            elif kind == "end":
                data = make_marker(log.end_offset, producer, epochs[producer], commit=True, coordinator_epoch=2)
                log.append(headers_of(data), data, NOW_MS)
            else:
                if kind == "bump":
                    epochs[producer] += 1
                    sequences[producer] = 0
                append(
                    log,
                    *[b"x"] * count,
                    producer_id=producer,
                    producer_epoch=epochs[producer],
                    sequence=sequences[producer],
                    transactional=kind == "inside",
                )
                sequences[producer] += count
        noted = without_times(log)
        undecided = log.producers.first_undecided_offset
        log = logs.crash(log)
        assert without_times(log) == noted
        assert log.producers.first_undecided_offset == undecided
        assert log.producers.end_offset == log.end_offset


@pytest.mark.parametrize("lost", ["all", "newest", "damaged"])
def test_producers_are_known_again_when_snapshots_are_lost(logs: LogMaker, lost: str) -> None:
    log = logs.open()
    append(log, b"x" * 150, producer_id=1, producer_epoch=0, sequence=0)
    for sequence in range(30):
        append(log, b"x" * 150, producer_id=9, producer_epoch=2, sequence=sequence)
    log.flush()
    log.close(clean=False)
    for name in logs.files(".snapshot")[-1 if lost == "newest" else 0 :]:
        path = logs.directory / name
        if lost == "damaged":
            flip(path, 8)
        else:
            path.unlink()
    log = logs.open(recovery_point=31)
    assert {entry.producer_id: entry.last_offset for entry in log.producers.entries} == {1: 0, 9: 30}


def test_an_open_transaction_is_known_after_a_kill_and_closed_by_its_marker(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"outside")
    append(log, b"inside", producer_id=4, producer_epoch=1, sequence=0, transactional=True)
    assert log.producers.first_undecided_offset == 1
    log = logs.crash(log)
    assert log.producers.first_undecided_offset == 1
    data = make_marker(log.end_offset, 4, 1, commit=True, coordinator_epoch=6)
    log.append(headers_of(data), data, NOW_MS)
    for reopen in (None, logs.crash, logs.restart):
        log = reopen(log) if reopen else log
        assert log.producers.first_undecided_offset is None
        entry = log.producers.get(4)
        assert entry is not None
        assert entry.coordinator_epoch == 6


def test_leader_epochs_survive_a_kill_although_never_written(logs: LogMaker) -> None:
    log = logs.open()
    for epoch in (3, 3, 5):
        append(log, b"x" * 300, epoch=epoch)
    assert "leader-epoch-checkpoint" not in logs.files()
    log = logs.crash(log)
    assert log.epochs.entries == ((3, 0), (5, 2))
    log.flush()
    assert (logs.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n3 0\n5 2\n"


def test_epochs_and_producers_of_a_lost_tail_are_forgotten(logs: LogMaker) -> None:
    """Checkpoint and snapshot outlived the batches that they tell of."""
    logs.settings = LogSettings()
    log = logs.open()
    append(log, b"kept", epoch=1, producer_id=3, producer_epoch=0, sequence=0)
    size = log.size_bytes
    append(log, b"lost", epoch=5, producer_id=3, producer_epoch=0, sequence=1)
    log.close()
    with (logs.directory / log._active.name).open("r+b") as file:
        file.truncate(size)
    log = logs.open(recovery_point=2)
    assert log.end_offset == 1
    assert log.epochs.entries == ((1, 0),)
    entry = log.producers.get(3)
    assert entry is not None
    assert [batch.last_sequence for batch in entry.batches] == [0]
    assert log.producers.end_offset == 1


def test_a_time_index_of_a_longer_log_is_not_believed(logs: LogMaker) -> None:
    logs.settings = LogSettings()
    log = logs.open()
    append(log, b"kept", timestamp=NOW_MS)
    size = log.size_bytes
    append(log, b"lost", timestamp=NOW_MS + 1000)
    log.close()
    with (logs.directory / log._active.name).open("r+b") as file:
        file.truncate(size)
    log = logs.open(clean=True, recovery_point=1)
    assert log.max_timestamp() == (NOW_MS, 0, 0)


@pytest.mark.parametrize("lost_power", [False, True])
@pytest.mark.parametrize("cut", [0, -1, 1])
def test_a_log_that_lost_records_after_a_clean_stop_refuses_to_open_and_changes_nothing(
    logs: LogMaker, cut: int, lost_power: bool
) -> None:
    log = logs.open()
    fill(log, 3)
    start = positions(log)[2]
    path = logs.directory / log._active.name
    log.close()
    path.write_bytes(path.read_bytes()[: start + cut])
    before = path.read_bytes()
    with pytest.raises(CorruptLogError):
        logs.open(clean=True, recovery_point=3, lost_power=lost_power)
    assert path.read_bytes() == before


def test_a_damaged_epoch_checkpoint_is_rebuilt(logs: LogMaker) -> None:
    log = logs.open()
    for epoch in range(20):
        append(log, b"x" * 300, epoch=epoch)
    entries = log.epochs.entries
    log.close()
    for content in (b"0\n7\n3 0\n", b"\xff\xfe", b"0\n1\nthree 0\n", None):
        path = logs.directory / "leader-epoch-checkpoint"
        path.unlink() if content is None else path.write_bytes(content)
        log = logs.open(clean=True, recovery_point=20)
        assert log.epochs.entries == entries
        log.close()


def test_a_start_offset_past_the_end_empties_the_log(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 5)
    log.close()
    log = logs.open(clean=True, recovery_point=5, start_offset=50)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (50, 50, 0)
    assert append(log, b"x") == 50


def test_batches_larger_than_what_is_read_at_once_are_recovered(
    logs: LogMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.segment_check.CHECK_CHUNK_BYTES", 100)
    log = logs.open()
    fill(log, 5, size=1000)
    fill(log, 5, size=10)
    log = logs.crash(log)
    assert [record.offset for record in read_all(log)] == list(range(10))


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_producer_of_old_records_is_known_after_a_restart(logs: LogMaker, is_clean: bool) -> None:
    """What counts is when it appended: a backfill is older than any producer is remembered for."""
    now_ms = int(time.time() * 1000)
    logs.settings = LogSettings(producer_id_expiration_ms=3_600_000)
    log = logs.open()
    batch = make_batch(0, [b"order"], timestamp=NOW_MS, producer_id=7, producer_epoch=0, sequence=0)
    log.append(headers_of(batch), batch, now_ms)
    if is_clean:
        log.close(clean=True)
    log = Log.open(
        OsFilesystem(),
        logs.directory,
        logs.settings,
        recovery_point=1 if is_clean else 0,
        clean=is_clean,
        now_ms=now_ms,
    )
    assert [entry.producer_id for entry in log.producers.entries] == [7]
    assert log.producers.expire(now_ms + 3_500_000, 3_600_000) == 0
    assert log.producers.expire(now_ms + 3_700_000, 3_600_000) == 1


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_start_that_is_said_to_be_clean_checks_a_torn_end(logs: LogMaker, is_indexed: bool) -> None:
    log = logs.open()
    fill(log, 3)
    log.close(clean=True)
    (path,) = logs.directory.glob("*.log")
    path.write_bytes(path.read_bytes()[:-10])
    if not is_indexed:
        for index in logs.directory.glob("*.*index"):
            index.unlink()
    log = logs.open(clean=True, recovery_point=2)
    assert log.end_offset == 2
    # What is appended follows the last whole batch.
    fill(log, 1)
    log = logs.restart(log)
    assert log.end_offset == 3
    log.close()


def test_bytes_after_the_end_of_a_log_that_was_stopped_cleanly_are_truncated(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 40)
    path = logs.directory / log._active.name
    log.close()
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"\x00" * 100)
    log = logs.open(clean=True, recovery_point=40)
    assert (log.end_offset, log.recovery.bytes_truncated, path.stat().st_size) == (40, 100, size)
    assert append(log, b"more") == 40
    assert len(read_all(log)) == 41
