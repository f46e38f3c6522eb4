"""Batches that take too long for the event loop: prepared by workers, in turns, and appended in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_produce_order import DATA, VERSION, World, connection, error_of, settled, world_of

from penstock.api.context import Client
from penstock.api.records.produce import WAITING_BYTES_MAX
from penstock.model.errors import ErrorCode, ProtocolError, Throttled
from penstock.runtime.fair_work import ALL_BYTES_MAX, CLIENT_BYTES_MAX, FairWork
from penstock.runtime.replication.batch_preparation import (
    INLINE_BYTES_MAX,
    INLINE_COMPRESSED_BYTES_MAX,
    INLINE_RECORDS_MAX,
)
from penstock.runtime.replication.partition import Partition
from penstock.wire.apis import ApiKey
from penstock.wire.codec import decode, encode
from penstock.wire.compression import Compression
from penstock.wire.frame import RequestHeader, encode_request
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.wire.records import Record, build_batch, read_header
from support.worlds.transaction_shell import TransactionShell, play

LARGE = bytes(2 * INLINE_COMPRESSED_BYTES_MAX)


class Workers:
    """Does its work only when the test decides."""

    def __init__(self) -> None:
        self.asked: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    def run_blocking(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append((work, done))
        return done

    async def work(self) -> None:
        for work, done in self.asked:
            try:
                done.set_result(work())
            except Exception as error:  # noqa: BLE001 - the waiting caller gets it
                done.set_exception(error)
        self.asked.clear()
        await settled()


def data_partition(shell: TransactionShell) -> Partition:
    partition = shell.partitions.get(DATA.topic, 0)
    assert partition is not None
    return partition


async def world_with(shell: TransactionShell, **settings: Any) -> tuple[World, Workers]:
    """The topic of `DATA` with other settings, and workers that wait."""
    workers = Workers()
    world = await world_of(shell)
    partition = data_partition(shell)
    partition.configure(replace(partition.settings, **settings))
    partition.decompressed_bytes_max = 64 * INLINE_BYTES_MAX
    shell.env.run_blocking = workers.run_blocking  # type: ignore[method-assign]
    return world, workers


def test_a_large_batch_is_compressed_by_a_worker_and_those_behind_it_wait(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world, workers = await world_with(shell, compression_type="zstd", compression_zstd_level=22)
        client = connection()
        replies = [
            world.send(client, DATA.topic, LARGE),
            world.send(client, DATA.topic, b"behind"),
            world.send(connection(2), DATA.topic, b"other"),
        ]
        await settled()
        assert world.values(DATA.topic) == [b"other"]
        assert len(workers.asked) == 1
        await workers.work()
        for reply in replies:
            assert error_of(await reply if isinstance(reply, asyncio.Future) else reply) is ErrorCode.NONE
        assert world.values(DATA.topic) == [b"other", LARGE, b"behind"]
        stored = data_partition(shell).log.read(1, 1 << 20, minimum_one_batch=True).read()
        assert read_header(stored).compression is Compression.ZSTD
        assert (client.last_write, client.waiting_bytes) == (None, 0)

    play(tmp_path, story)


def test_what_is_small_when_sent_and_large_when_decompressed_is_prepared_by_a_worker(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world, workers = await world_with(shell)
        for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
            reply = world.send(connection(), DATA.topic, bytes(2 * INLINE_BYTES_MAX), compression=codec)
            await settled()
            assert len(workers.asked) == 1, codec
            await workers.work()
            assert error_of(await reply) is ErrorCode.NONE
        reply = world.send(connection(), DATA.topic, bytes(INLINE_BYTES_MAX // 2), compression=Compression.ZSTD)
        assert error_of(reply) is ErrorCode.NONE
        assert not workers.asked

    play(tmp_path, story)


def test_a_batch_of_many_records_is_checked_by_a_worker(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world, workers = await world_with(shell, message_timestamp_after_max_ms=1000)
        now_ms = shell.env.now_ms()
        records = [Record(at, now_ms + 10**6, None, b"") for at in range(INLINE_RECORDS_MAX + 1)]
        reply = send_all(world, connection(), [build_batch(records)])
        await settled()
        assert len(workers.asked) == 1
        await workers.work()
        (row,) = rows_of(await reply)
        # Which of them are refused is found by the worker too.
        assert (row.error_code, len(row.record_errors)) == (ErrorCode.INVALID_TIMESTAMP, 10_000)

    play(tmp_path, story)


@pytest.mark.parametrize("settings", [{}, {"compression_type": "zstd"}])
def test_a_batch_of_as_many_records_as_are_checked_at_once_needs_no_worker(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    async def story(shell: TransactionShell) -> None:
        world, workers = await world_with(shell, **settings)
        now_ms = shell.env.now_ms()
        records = [Record(at, now_ms, None, b"") for at in range(INLINE_RECORDS_MAX)]
        batch = build_batch(records, compression=Compression.ZSTD if settings else Compression.NONE)
        (row, *_) = rows_of(send_all(world, connection(), [batch], acks=1))
        assert row.error_code == ErrorCode.NONE
        assert not workers.asked

    play(tmp_path, story)


def send_all(world: World, client: Client, batches: list[bytes], acks: int = -1) -> Any:
    """One request with a batch for the same partition in each of several topic rows, and each twice."""
    data = [PartitionProduceData(0, batch) for batch in batches]
    request = ProduceRequest(None, acks, 30_000, [TopicProduceData(DATA.topic, partition_data=data)])
    header = RequestHeader(ApiKey.PRODUCE, VERSION, 1, "test")
    frame = b"".join(encode_request(header, [encode(request, VERSION)]))
    return world.dispatcher.answer(bytearray(frame[4:]), client)


def rows_of(reply: Any) -> Any:
    (topic,) = decode(ProduceResponse, VERSION, b"".join(reply)[9:]).responses
    return topic.partition_responses


def test_the_batches_of_one_request_are_appended_in_order_with_one_answer_each(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world, workers = await world_with(shell)
        now_ms = shell.env.now_ms()

        def batch(value: bytes, compression: Compression = Compression.NONE) -> bytes:
            return build_batch([Record(0, now_ms, None, b"12345" + value)], compression=compression)

        damaged = bytearray(batch(bytes(2 * INLINE_BYTES_MAX), Compression.ZSTD))
        damaged[-1] ^= 1
        large = batch(b"large" + bytes(2 * INLINE_BYTES_MAX), Compression.ZSTD)
        reply = send_all(
            world, connection(), [batch(b"a"), large, b"", batch(b"b"), bytes(damaged), large, batch(b"c")]
        )
        for _ in range(5):
            await settled()
            await workers.work()
        codes = [row.error_code for row in rows_of(await reply)]
        assert codes == [0, 0, ErrorCode.INVALID_RECORD, 0, ErrorCode.CORRUPT_MESSAGE, 0, 0]
        assert [row.base_offset for row in rows_of(await reply) if not row.error_code] == [0, 1, 2, 3, 4]
        partition = data_partition(shell)
        assert partition.log.end_offset == 5

    play(tmp_path, story)


def test_the_loop_gets_a_turn_within_a_request_of_many_batches(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world, workers = await world_with(shell)
        # Each unfolds to less than what is done at once, and all of them to sixteen times as much.
        value = bytes(INLINE_BYTES_MAX // 2)
        batches = [build_batch([Record(0, 0, None, value)], compression=Compression.ZSTD)] * 32
        reply = send_all(world, connection(), batches)
        partition = data_partition(shell)
        seen = [partition.log.end_offset]
        while not reply.done():
            await asyncio.sleep(0)
            seen.append(partition.log.end_offset)
        assert seen[0] <= 3
        assert max(after - before for before, after in pairwise(seen)) <= 3
        assert partition.log.end_offset == 32
        assert not workers.asked

    play(tmp_path, story)


def test_a_large_batch_without_acknowledgement_that_is_refused_closes_the_connection(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world, workers = await world_with(shell, max_message_bytes=CLIENT_BYTES_MAX)
        damaged = bytearray(build_batch([Record(0, 0, None, bytes(2 * INLINE_BYTES_MAX))]))
        damaged[-1] ^= 1
        reply = send_all(world, connection(), [bytes(damaged)], acks=0)
        await settled()
        await workers.work()
        with pytest.raises(ProtocolError, match="acks=0"):
            await reply

    play(tmp_path, story)


def test_a_leader_that_is_replaced_meanwhile_appends_nothing(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world, workers = await world_with(shell)
        reply = world.send(connection(), DATA.topic, bytes(2 * INLINE_BYTES_MAX), compression=Compression.ZSTD)
        await settled()
        partition = data_partition(shell)
        partition.fence()
        await workers.work()
        assert error_of(await reply) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log.end_offset == 0

    play(tmp_path, story)


def test_a_client_with_much_unfinished_work_is_held_back_on_any_connection(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world, workers = await world_with(shell, compression_type="gzip", max_message_bytes=CLIENT_BYTES_MAX)
        replies = [world.send(connection(), DATA.topic, bytes(CLIENT_BYTES_MAX // 8)) for _ in range(9)]
        await settled()
        assert len(workers.asked) == 1, "one at a time"
        with pytest.raises(Throttled):
            world.send(connection(), DATA.topic, b"small")
        other = connection(2)
        other.principal = "User:other"
        assert error_of(world.send(other, DATA.topic, b"other")) is ErrorCode.NONE
        while not all(reply.done() for reply in replies):
            await workers.work()
        assert error_of(world.send(connection(), DATA.topic, b"small")) is ErrorCode.NONE

    play(tmp_path, story)


def test_a_connection_with_much_that_waits_is_served_nothing_more(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world, workers = await world_with(shell, max_message_bytes=CLIENT_BYTES_MAX)
        client = connection()
        value = bytes(2 * INLINE_BYTES_MAX)
        sent = WAITING_BYTES_MAX // len(value)
        for _ in range(sent):
            world.send(client, DATA.topic, value)
        with pytest.raises(Throttled):
            world.send(client, DATA.topic, value)
        while client.last_write is not None:
            await settled()
            await workers.work()
        assert data_partition(shell).log.end_offset == sent
        assert client.waiting_bytes == 0

    play(tmp_path, story)


def test_work_is_done_in_turns() -> None:
    async def story() -> None:
        workers = Workers()
        work = FairWork(SimpleNamespace(run_blocking=workers.run_blocking), workers_max=2)  # type: ignore[arg-type]
        done: list[str] = []
        futures = [
            work.run(name[0], lambda name=name: done.append(name), 1)  # type: ignore[misc]
            for name in ("a1", "a2", "a3", "b1", "b2", "c1")
        ]
        futures[2].cancel()
        while workers.asked:
            assert len(workers.asked) <= 2
            await workers.work()
        assert done == ["a1", "b1", "c1", "a2", "b2"]
        assert (work._bytes, work.held_bytes) == ({}, 0)

    asyncio.run(story())


def test_what_work_holds_is_limited_for_one_client_and_for_all() -> None:
    async def story() -> None:
        workers = Workers()
        work = FairWork(SimpleNamespace(run_blocking=workers.run_blocking))  # type: ignore[arg-type]
        failing = work.run("a", lambda: 1 // 0, CLIENT_BYTES_MAX + 1)
        assert work.is_full("a")
        assert not work.is_full("b")
        for number in range(ALL_BYTES_MAX // CLIENT_BYTES_MAX):
            work.run(f"c{number}", lambda: None, CLIENT_BYTES_MAX)
        assert work.is_full("b")
        while workers.asked:
            await workers.work()
        assert not work.is_full("a")
        with pytest.raises(ZeroDivisionError):
            await failing

    asyncio.run(story())
