"""On a full disk a broker drops what object storage has, then what has expired, and only then refuses writes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.api.context import Client, RequestContext
from penstock.api.replicas.describe_log_dirs import describe_log_dirs
from penstock.model.errors import ApiError
from penstock.runtime.logs.directories import LogDirectory
from penstock.runtime.logs.housekeeping import Housekeeping
from penstock.runtime.replication.partition import Partition
from penstock.storage.files import DiskSpace, StorageError
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.wire.records import Record, build_batch
from support.worlds.transaction_shell import DATA, TransactionShell, play

OLD_MS = 1_000_000
SEGMENTS = 5


class Tier:
    """Object storage that has everything up to an offset."""

    def __init__(self, copied: int) -> None:
        self.copied = copied

    def copied_offset(self, _: Partition) -> int:
        return self.copied


class World:
    """One partition of five segments, of one record each, and a disk that has room for `room` of them."""

    def __init__(self, shell: TransactionShell, monkeypatch: pytest.MonkeyPatch, room: float, **settings: Any) -> None:
        found = shell.partitions.get(*DATA)
        assert found is not None
        self.partition = found
        found.configure(replace(found.settings, **settings))
        now_ms = shell.env.now_ms()
        for _ in range(SEGMENTS):
            timestamp = OLD_MS if settings.get("retention_ms") else now_ms
            found.append(bytearray(build_batch([Record(0, timestamp, None, bytes(1_000))])), now_ms)
            found.log.roll(now_ms)
        self.shell = shell
        self.directory: LogDirectory = shell.partitions.home(found)
        total = int(room * found.log.size_bytes / SEGMENTS)

        def disk_space(_: Path) -> DiskSpace:
            files = found.log.directory.glob("*.log*")
            return DiskSpace(total, max(0, total - sum(path.stat().st_size for path in files)))

        monkeypatch.setattr(shell.env.filesystem, "disk_space", disk_space, raising=False)

    async def look(self, tier: Any = None) -> tuple[int, bool]:
        """Look at the disk; the first offset on it afterwards, and whether writes are refused."""
        settings = replace(self.shell.settings, penstock_disk_full_percent=90.0)
        await Housekeeping(self.shell.env, self.shell.partitions, lambda: settings, tier).watch_disks()
        return self.partition.log.local_start_offset, self.directory.is_full


def test_tiered_segments_leave_a_full_disk_regardless_of_local_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(shell: TransactionShell) -> None:
        world = World(shell, monkeypatch, 5.2, remote_storage_enable=True, local_retention_ms=10**12)
        tier = Tier(2)
        assert await world.look(tier) == (3, False)
        assert world.partition.log.start_offset == 0
        assert len(list(world.partition.log.directory.glob("*.log*"))) == 3, "files wait for no delay on a full disk"

    play(tmp_path, story)


def test_a_disk_that_is_not_full_keeps_what_the_tier_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        world = World(shell, monkeypatch, 6, remote_storage_enable=True, local_retention_ms=10**12)
        assert await world.look(Tier(2)) == (0, False)

    play(tmp_path, story)


def test_what_was_not_copied_stays_and_writes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        world = World(shell, monkeypatch, 4, remote_storage_enable=True, local_retention_ms=10**12)
        assert await world.look(Tier(-1)) == (0, True)
        with pytest.raises(ApiError, match="nearly full"):
            world.directory.check_writable()
        # The copies are finished: the next look makes room.
        assert await world.look(Tier(4)) == (5, False)
        world.directory.check_writable()

    play(tmp_path, story)


def test_what_has_expired_goes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        world = World(shell, monkeypatch, 5.2, retention_ms=1_000)
        assert await world.look() == (SEGMENTS, False)

    play(tmp_path, story)


def test_what_has_not_expired_is_never_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        world = World(shell, monkeypatch, 5.2)
        assert await world.look() == (0, True)

    play(tmp_path, story)


def test_the_forecast_of_a_filling_disk_is_reported_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        housekeeping = Housekeeping(shell.env, shell.partitions, lambda: shell.settings)
        describe = partial(describe_log_dirs, shell)  # type: ignore[arg-type]
        context = RequestContext(4, None, Client(("127.0.0.1", 1), "PLAINTEXT"))
        used: list[int] = []
        for minute in range(11):
            used.append(100 + minute)
            monkeypatch.setattr(shell.env, "monotonic_ms", lambda minute=minute: 1_000 + minute * 60_000)
            monkeypatch.setattr(shell.env.filesystem, "disk_space", lambda _: DiskSpace(1_000, 1_000 - used[-1]))
            await housekeeping.watch_disks()
        response: Any = describe(DescribeLogDirsRequest(None), context)
        # 90 % are used in 790 minutes, at one byte a minute.
        assert response.results[0].full_in_ms == 790 * 60_000

    play(tmp_path, story)


def test_a_disk_that_cannot_be_asked_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        def broken(_: Path) -> DiskSpace:
            raise StorageError("an input/output error")

        monkeypatch.setattr(shell.env.filesystem, "disk_space", broken)
        await Housekeeping(shell.env, shell.partitions, lambda: shell.settings).watch_disks()
        assert shell.directory.failure is not None

    play(tmp_path, story)
