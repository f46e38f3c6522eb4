"""Counting the keys at the end of partitions: what is read, how much of it, and for how many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import SystemEnv
from penstock.runtime.hot_keys import counting
from penstock.runtime.hot_keys.counting import WAITING_OF_USER_MAX, HotKeys
from penstock.runtime.hot_keys.worker import Job, Outcome
from penstock.runtime.replication.partition import Partition
from penstock.storage.files import OsFilesystem
from penstock.storage.log import Log
from penstock.storage.settings import LogSettings
from penstock.wire.records import Record, build_batch, read_header

BATCH_RECORDS = 5


def partition(path: Path, name: str, batches: int, high_watermark: int | None = None) -> Partition:
    """Batches of five records; each batch has a key of its own, and a segment ten of them."""
    settings = LogSettings(segment_bytes=1_200)
    log = Log.open(OsFilesystem(), path / name, settings, now_ms=1_000, clean=True, recovery_point=0)
    for number in range(batches):
        base = number * BATCH_RECORDS
        key = b"key-%04d" % number
        records = [Record(base + each, 1_000, key, b"v" * 5) for each in range(BATCH_RECORDS)]
        data = build_batch(records, base_offset=base, leader_epoch=0)
        log.append([read_header(data)], data, 1_000)
    end = log.end_offset if high_watermark is None else high_watermark

    def read(offset: int, size_max: int, *, committed_only: bool, minimum_one_batch: bool) -> Any:
        assert not committed_only
        return log.read(offset, size_max, minimum_one_batch=minimum_one_batch, offset_max=end)

    return cast("Partition", SimpleNamespace(log=log, high_watermark=end, read=read))


def run(work: Callable[[HotKeys], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        env = SystemEnv()
        try:
            await work(HotKeys(env))
        finally:
            await env.close()

    asyncio.run(inside())


@pytest.fixture(autouse=True)
def _in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no process can be started."""

    async def no_process(_: Job) -> Outcome:
        raise OSError("no process starts")

    monkeypatch.setattr(counting, "_count_in_process", no_process)


def keys(outcome: Outcome, number: int = 0) -> set[bytes]:
    return {one.key for one in outcome.counted[number].report.keys}


def test_all_of_a_small_partition_is_counted(tmp_path: Path) -> None:
    async def work(hot_keys: HotKeys) -> None:
        outcome = await hot_keys.count([partition(tmp_path, "a", 40)], 1_000, 1_000)
        (counted,) = outcome.counted
        assert (counted.problem, counted.report.records) == ("", 200)
        assert keys(outcome) == {b"key-%04d" % number for number in range(40)}

    run(work)


def test_the_last_records_are_counted_and_none_that_is_not_committed(tmp_path: Path) -> None:
    async def work(hot_keys: HotKeys) -> None:
        both = [partition(tmp_path, "a", 40), partition(tmp_path, "b", 40, high_watermark=100)]
        outcome = await hot_keys.count(both, 40, 1_000)
        # They share the records; a batch is read as a whole.
        assert [one.report.records for one in outcome.counted] == [20, 20]
        assert keys(outcome, 0) == {b"key-%04d" % number for number in range(36, 40)}
        assert keys(outcome, 1) == {b"key-%04d" % number for number in range(16, 20)}
        one = await hot_keys.count(both[:1], 0, 1_000)
        assert keys(one) == {b"key-0039"}
        empty = await hot_keys.count([partition(tmp_path, "c", 0)], 10, 10)
        assert empty.counted[0].report.records == 0
        assert (await hot_keys.count([], 10, 10)).counted == []

    run(work)


def test_the_bytes_to_read_are_shared_and_are_the_last_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(hot_keys: HotKeys) -> None:
        both = [partition(tmp_path, "a", 40), partition(tmp_path, "b", 40)]
        size = both[0].log.size_bytes
        monkeypatch.setattr(counting, "BYTES_MAX", size)
        outcome = await hot_keys.count(both, 10_000, 1_000)
        for counted in outcome.counted:
            assert 80 <= counted.report.records <= 110
            assert b"key-0039" in {one.key for one in counted.report.keys}

    run(work)


def test_a_request_cannot_have_everything_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(hot_keys: HotKeys) -> None:
        monkeypatch.setattr(counting, "RECORDS_MAX", 10)
        outcome = await hot_keys.count([partition(tmp_path, "a", 40)], 10_000, 1_000)
        assert outcome.counted[0].report.records == 10

    run(work)


def test_one_is_counted_after_the_other_and_few_may_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = most = 0
    gate = asyncio.Event()

    async def slow(_: Job) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return Outcome([], 0.0)

    async def work(hot_keys: HotKeys) -> None:
        monkeypatch.setattr(counting, "_count_in_process", slow)
        one = [partition(tmp_path, "a", 1)]
        ended: list[str] = []

        async def ask(user: str) -> None:
            await hot_keys.count(one, 10, 10, user)
            ended.append(user)

        asked = [asyncio.ensure_future(ask("many")) for _ in range(1 + WAITING_OF_USER_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as refused:
            await hot_keys.count(one, 10, 10, "many")
        assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        asked.append(asyncio.ensure_future(ask("other")))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*asked)
        assert ended == ["many", "many", "other", "many"]
        assert most == 1
        assert (await hot_keys.count(one, 10, 10)).counted == []

    run(work)


def test_a_process_counts_as_a_thread_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(hot_keys: HotKeys) -> None:
        one = [partition(tmp_path, "a", 40)]
        in_thread = await hot_keys.count(one, 40, 3)
        monkeypatch.undo()
        in_process = await hot_keys.count(one, 40, 3)
        assert in_process.counted == in_thread.counted

    run(work)
