"""Local retention of a tiered partition: what leaves the disk, and what never does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.metadata.image import ResourceType
from penstock.runtime.logs.housekeeping import Housekeeping
from penstock.wire.messages.metadata_records import ConfigRecord
from penstock.wire.records import Record, build_batch
from support.worlds.transaction_shell import DATA, TransactionShell, play

HOUR_MS = 3_600_000
SEGMENTS = 5


def first_offset_kept(path: Path, copied: int, **settings: Any) -> int:
    """Five segments of a record each, which are five hours to one hour old; the first offset on disk afterwards."""
    found: list[int] = []

    async def work(shell: TransactionShell) -> None:
        partition = shell.partitions.get(*DATA)
        assert partition is not None
        partition.configure(replace(partition.settings, remote_storage_enable=True, **settings))
        now_ms = shell.env.now_ms()
        for number in range(SEGMENTS):
            record = Record(0, now_ms - (SEGMENTS - number) * HOUR_MS, None, bytes(1_000))
            partition.append(bytearray(build_batch([record])), now_ms)
            partition.log.roll(now_ms)
        tier = cast("Any", SimpleNamespace(copied_offset=lambda _: copied))
        housekeeping = Housekeeping(shell.env, shell.partitions, lambda: shell.settings, tier)
        await housekeeping.retain_all()
        found.append(partition.log.local_start_offset)

    play(path, work)
    return found[0]


@pytest.mark.parametrize(
    ("copied", "settings", "first"),
    [
        # All of it is older than half an hour, and none older than six hours.
        (SEGMENTS - 1, {"local_retention_ms": HOUR_MS // 2}, SEGMENTS),
        (SEGMENTS - 1, {"local_retention_ms": 6 * HOUR_MS}, 0),
        (SEGMENTS - 1, {"local_retention_ms": 3 * HOUR_MS + HOUR_MS // 2}, 2),
        # Only a part is in the tier.
        (2, {"local_retention_ms": HOUR_MS // 2}, 3),
        (-1, {"local_retention_ms": HOUR_MS // 2}, 0),
        # -2 stands for the topic's own limit, which is no reason to delete what is not in the tier.
        (1, {"local_retention_ms": -2, "retention_ms": HOUR_MS // 2}, 2),
        (SEGMENTS - 1, {"local_retention_ms": -1, "retention_ms": HOUR_MS // 2}, 0),
        (SEGMENTS - 1, {"local_retention_bytes": 2_000}, 3),
    ],
)
def test_what_was_copied_and_is_past_the_local_limits_leaves_the_disk(
    tmp_path: Path, copied: int, settings: dict[str, int], first: int
) -> None:
    assert first_offset_kept(tmp_path, copied, **settings) == first


@pytest.mark.parametrize(("age_ms", "rolls"), [(HOUR_MS + 60_000, True), (HOUR_MS - 60_000, False)])
def test_a_segment_that_is_to_leave_the_disk_is_rolled_so_that_it_can_be_copied(
    tmp_path: Path, age_ms: int, rolls: bool
) -> None:
    async def work(shell: TransactionShell) -> None:
        partition = shell.partitions.get(*DATA)
        assert partition is not None
        partition.configure(replace(partition.settings, remote_storage_enable=True, local_retention_ms=HOUR_MS))
        now_ms = shell.env.now_ms()
        partition.append(bytearray(build_batch([Record(0, now_ms - age_ms, None, b"v")])), now_ms)
        tier = cast("Any", SimpleNamespace(copied_offset=lambda _: -1))
        Housekeeping(shell.env, shell.partitions, lambda: shell.settings, tier).retain(partition)
        assert (partition.log.segment_count == 2) is rolls
        assert partition.log.local_start_offset == 0

    play(tmp_path, work)


def test_a_changed_retention_takes_effect_at_once(tmp_path: Path) -> None:
    async def work(shell: TransactionShell) -> None:
        partition = shell.partitions.get(*DATA)
        assert partition is not None
        now_ms = shell.env.now_ms()
        for _ in range(3):
            partition.append(bytearray(build_batch([Record(0, now_ms - HOUR_MS, None, b"v")])), now_ms)
            partition.log.roll(now_ms)
        Housekeeping(shell.env, shell.partitions, lambda: shell.settings).start()
        assert partition.log.start_offset == 0
        shell.commit(ConfigRecord(ResourceType.TOPIC, DATA.topic, "retention.ms", str(HOUR_MS // 2)))
        assert partition.log.start_offset == 3

    play(tmp_path, work)
