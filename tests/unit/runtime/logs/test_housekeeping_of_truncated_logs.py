"""Housekeeping leaves a log alone while it is truncated in steps, and a partition that was removed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.model.errors import ApiError
from penstock.runtime.logs.housekeeping import Housekeeping
from penstock.runtime.replication.partition import Partition
from penstock.wire.messages.metadata_records import PartitionChangeRecord, RemoveTopicRecord
from penstock.wire.records import Record, build_batch
from support.worlds.transaction_shell import DATA, TransactionShell, play

OLD_MS = 1_000_000


def fill(shell: TransactionShell) -> Partition:
    """Three segments of two records, and one of one: all of them have expired, and the last one is to be rolled."""
    partition = shell.partitions.get(*DATA)
    assert partition is not None
    partition.configure(replace(partition.settings, retention_ms=1_000, segment_ms=1))
    for number in range(7):
        partition.append(bytearray(build_batch([Record(0, OLD_MS, b"k", b"v")])), OLD_MS)
        if number % 2:
            partition.log.roll(OLD_MS)
    return partition


def test_retention_removes_no_segment_that_a_truncation_is_about_to_cut(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        partition = fill(shell)
        log = partition.log
        housekeeping = Housekeeping(shell.env, shell.partitions, lambda: shell.settings)

        def steps() -> Iterator[int]:
            for offset in log.truncation(3, OLD_MS):
                yield offset
                housekeeping.retain(partition)

        work = shell.partitions.carry_out(partition, steps())
        await housekeeping.retain_all()
        assert (log.segment_count, log.start_offset, log.end_offset) == (4, 0, 7)
        await work
        assert (log.start_offset, log.end_offset) == (0, 3)
        housekeeping.retain(partition)
        assert log.start_offset == 3

    play(tmp_path, story)


def test_a_truncation_that_finds_files_missing_ends(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        partition = fill(shell)

        def steps() -> Iterator[int]:
            yield from partition.log.truncation(5, OLD_MS)
            raise FileNotFoundError("a segment")

        with pytest.raises(ApiError, match="a segment"):
            await shell.partitions.carry_out(partition, steps())
        assert not partition.is_truncating
        assert partition.log.is_failed

    play(tmp_path, story)


def test_there_is_nothing_to_settle_for_a_partition_that_was_removed(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        partition = fill(shell)
        housekeeping = Housekeeping(shell.env, shell.partitions, lambda: shell.settings)
        shell.partitions.follow([RemoveTopicRecord(partition.topic_id)])
        await housekeeping.settle_deletions([partition])

    play(tmp_path, story)


def test_the_high_watermark_is_not_past_the_end_of_a_log_that_is_truncated(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        partition = fill(shell)
        await partition.sync.durable(7)
        assert partition.high_watermark == 7
        seen = []

        def steps() -> Iterator[int]:
            for offset in partition.log.truncation(3, OLD_MS):
                yield offset
                seen.append((partition.high_watermark, partition.log.end_offset))

        await shell.partitions.carry_out(partition, steps())
        assert seen
        assert all(high_watermark == end_offset for high_watermark, end_offset in seen)
        assert partition.high_watermark == 3

    play(tmp_path, story)


def test_requests_for_a_new_leader_wait_until_its_truncation_has_ended(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        partition = fill(shell)
        partitions, topic_id = shell.partitions, partition.topic_id

        def elect(broker_id: int) -> None:
            change = PartitionChangeRecord(partition_id=DATA.partition, topic_id=topic_id, leader=broker_id)
            shell.image.replay(change)
            partitions.follow([change])

        elect(2)
        assert not partition.is_leader
        work = partitions.carry_out(partition, partition.log.truncation(3, OLD_MS))
        elect(1)
        waiting = partitions.opening(DATA.topic, topic_id, DATA.partition, by_id=True)
        assert waiting is not None
        await asyncio.sleep(0)
        assert (waiting.done(), partition.is_leader) == (False, False)
        await work
        assert (waiting.done(), partition.is_leader) == (True, True)

    play(tmp_path, story)
