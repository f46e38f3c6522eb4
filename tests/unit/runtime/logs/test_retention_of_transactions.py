"""Retention keeps what an open transaction has written; deleting records on purpose does not leave readers behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.replica import producer_state
from penstock.core.replica.producer_state import EndMarker
from penstock.runtime.logs.housekeeping import Housekeeping
from penstock.runtime.replication.leading import delete_records
from penstock.runtime.replication.partition import Partition
from penstock.storage.files import StorageError
from penstock.storage.log import Log
from penstock.wire.records import Record, build_batch
from support.worlds.transaction_shell import DATA, TransactionShell, play

OLD_MS = 1_000_000
DAY_MS = 24 * 3_600_000
COMMIT = EndMarker(False, 0, transaction_version=0)


def partition_of(shell: TransactionShell) -> Partition:
    found = shell.partitions.get(*DATA)
    assert found is not None
    return found


def write(partition: Partition, now_ms: int, **options: int | bool) -> None:
    records = [Record(0, OLD_MS, b"k", b"v")]
    partition.append(bytearray(build_batch(records, **options)), now_ms)  # type: ignore[arg-type]
    partition.log.roll(now_ms)


def fill(shell: TransactionShell) -> Partition:
    """Three segments that have expired; a transaction is open in the second, and in none of the others."""
    partition = partition_of(shell)
    partition.configure(replace(partition.settings, retention_ms=1_000))
    now_ms = shell.env.now_ms()
    write(partition, now_ms)
    write(partition, now_ms, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    write(partition, now_ms)
    return partition


def test_an_open_transaction_holds_retention_back_until_it_is_over(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        partition = fill(shell)
        housekeeping = Housekeeping(shell.env, shell.partitions, lambda: shell.settings)
        housekeeping.retain(partition)
        assert partition.log.start_offset == 1
        partition.append_marker(7, 0, COMMIT, shell.env.now_ms())
        housekeeping.retain(partition)
        assert partition.log.start_offset == 3

    play(tmp_path, story)


def test_a_log_that_cannot_roll_does_not_keep_retention_from_making_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_log: Log, _now_ms: int) -> bool:
        raise StorageError("no space is left")

    async def story(shell: TransactionShell) -> None:
        partition = fill(shell)
        monkeypatch.setattr(Log, "roll_if_due", refuse)
        await Housekeeping(shell.env, shell.partitions, shell.settings).retain_all()
        assert partition.log.start_offset == 1

    play(tmp_path, story)


def test_others_get_their_turn_while_the_producers_of_a_partition_are_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_state, "ENTRIES_PER_TURN", 10)

    async def story(shell: TransactionShell) -> None:
        partition = partition_of(shell)
        now_ms = shell.env.now_ms()
        for producer_id in range(100):
            records = [Record(0, OLD_MS, b"k", b"v")]
            data = bytearray(build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0))
            partition.append(data, now_ms - (DAY_MS if producer_id % 2 else 0))
        work = asyncio.ensure_future(
            Housekeeping(shell.env, shell.partitions, lambda: shell.settings).expire_producers()
        )
        turns = 0
        while not work.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 5
        assert [entry.producer_id for entry in partition.log.producers.entries] == list(range(0, 100, 2))

    play(tmp_path, story)


def test_a_log_that_lacks_a_file_does_not_keep_others_from_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ended with it, for all partitions and until the next start."""

    async def story(shell: TransactionShell) -> None:
        housekeeping = Housekeeping(shell.env, shell.partitions, shell.settings)
        first, *others = list(shell.partitions)
        met: list[Partition] = []

        def job(partition: Partition) -> None:
            met.append(partition)
            if partition is first:
                raise FileNotFoundError(2, "No such file or directory", "00000000000000000000.log")

        await housekeeping._each(job)
        assert met == [first, *others]
        monkeypatch.setattr(Log, "segment_facts", lambda _: job(first))
        partition = fill(shell)
        housekeeping.retain(partition)
        assert partition.log.start_offset == 0

    play(tmp_path, story)


def test_readers_of_committed_records_continue_where_an_open_transaction_was_deleted(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        partition = fill(shell)
        assert partition.last_stable_offset == 1
        assert delete_records(partition, 2) == 2
        assert partition.last_stable_offset == 2
        assert partition.read(2, 1_000, committed_only=True, minimum_one_batch=True).size == 0

    play(tmp_path, story)
