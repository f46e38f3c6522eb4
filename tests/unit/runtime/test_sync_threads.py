"""Syncs in threads of their own: each file's, its errors, and an end that waits for all."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
from pathlib import Path

import pytest

from penstock.runtime.env import SystemEnv
from penstock.runtime.sync_threads import IS_NATIVE, SyncThreads
from penstock.storage.files import OsFile, OsFilesystem, StorageError

needs_threads = pytest.mark.skipif(not IS_NATIVE, reason="needs the compiled part; install a C compiler")


def new_file(directory: Path, name: str) -> OsFile:
    return OsFilesystem().write_file(directory / name, b"data")


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_every_sync_is_answered(tmp_path: Path) -> None:
    async def run() -> None:
        env = SystemEnv()
        files = [new_file(tmp_path, f"file-{number}") for number in range(20)]
        try:
            await asyncio.wait_for(asyncio.gather(*(env.sync(file) for file in files * 10)), 60)
        finally:
            await env.close()

    before = open_descriptors()
    asyncio.run(run())
    gc.collect()
    assert open_descriptors() <= before


@needs_threads
def test_a_failed_sync_reports_the_reason_and_leaves_others_alone() -> None:
    async def run() -> None:
        syncs = SyncThreads(2)
        # A pipe cannot be synced.
        ends = os.pipe()
        pipe, device = OsFile(Path("pipe"), ends[1], 0), OsFile(Path("file"), os.memfd_create("file"), 0)
        failed, done = await asyncio.gather(syncs.sync(pipe), syncs.sync(device), return_exceptions=True)
        syncs.close()
        os.close(ends[0])
        assert done is None
        assert isinstance(failed, StorageError)
        assert (failed.message, failed.errno) == ("Cannot sync pipe: Invalid argument.", errno.EINVAL)

    asyncio.run(run())


@needs_threads
def test_closing_waits_for_what_was_asked_and_keeps_its_files_open(tmp_path: Path) -> None:
    async def run() -> None:
        syncs = SyncThreads(1)
        futures = [syncs.sync(new_file(tmp_path, f"file-{number}")) for number in range(50)]
        assert syncs.queued == 49
        syncs.close()
        assert syncs.queued == 0
        assert all(future.done() and future.exception() is None for future in futures)

    asyncio.run(run())


@needs_threads
def test_a_cancelled_sync_does_not_disturb_others(tmp_path: Path) -> None:
    async def run() -> None:
        syncs = SyncThreads(1)
        file = new_file(tmp_path, "file")
        cancelled, kept = syncs.sync(file), syncs.sync(file)
        cancelled.cancel()
        await asyncio.wait_for(kept, 60)
        syncs.close()

    asyncio.run(run())
