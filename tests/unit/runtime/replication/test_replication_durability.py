"""What leaders and followers make durable, and what a restart finds, over real sockets."""

from __future__ import annotations

import asyncio
import errno
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from replication_world import TOPIC, TOPIC_ID, Cluster, in_cluster, until

from penstock.api.context import Client, RequestContext
from penstock.core.lifecycle.retention import RetentionPlan
from penstock.model.errors import ErrorCode
from penstock.storage.checkpoint import RECOVERY_POINTS, read_offsets
from penstock.storage.files import CorruptLogError, StorageError, storage_error
from penstock.storage.flush import FlushTicket
from penstock.storage.log import Log
from penstock.storage.slices import LogSlice
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic


def test_a_leader_left_alone_during_a_sync_syncs_what_it_acknowledged_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_sync = threading.Event()
    run = FlushTicket.run

    def slow(ticket: FlushTicket) -> None:
        may_sync.wait(10)
        run(ticket)

    async def story(cluster: Cluster) -> None:
        one, _ = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        assert (await one.send(b"first")).error_code == 0
        monkeypatch.setattr(FlushTicket, "run", slow)
        one.partition.sync.request()
        await asyncio.sleep(0.01)
        assert (await one.send(b"second")).error_code == 0, "two replicas have it"
        cluster.refuse_proposals = True
        cluster.change(isr=[1])
        may_sync.set()
        await until(lambda: one.partition.log.flushed_offset == 2)

    in_cluster(tmp_path, story)


def test_a_finished_segment_is_synced_at_once(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        for broker in (one, two):
            broker.partition.log.settings = replace(broker.partition.log.settings, segment_bytes=300)
        for number in range(6):
            assert (await one.send(b"%d" % number * 100)).error_code == 0
        for broker in (one, two):
            assert broker.partition.log.segment_count > 2
            rolled_at = broker.partition.log._segments[-1].base_offset
            await until(lambda log=broker.partition.log, offset=rolled_at: log.flushed_offset >= offset)

    in_cluster(tmp_path, story)


def test_a_partition_that_retention_emptied_continues_under_a_restarted_leader(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        for number in range(5):
            assert (await one.send(b"%d" % number)).error_code == 0
        await until(lambda: two.partition.high_watermark == 5)
        for broker in (one, two):
            broker.partition.log.delete_segments(RetentionPlan(frozenset((0,)), 5), broker.env.now_ms())
            assert broker.partition.log.start_offset == broker.partition.log.end_offset == 5
            broker.partition.log.flush()
        cluster.refuse_proposals = True
        await one.crash()
        cluster.change(leader=2)
        one = await cluster.start(1)
        assert one.partition.log.epochs.latest == -1, "no record is left to tell of an epoch"
        cluster.change(leader=1, isr=[1])
        cluster.refuse_proposals = False
        await until(lambda: set(cluster.state.in_sync_replicas) == {1, 2})
        assert (await one.send(b"more")).error_code == 0, "both replicas have it"
        await until(lambda: two.values() == one.values() == [b"more"])

    in_cluster(tmp_path, story)


def test_an_epoch_is_known_from_its_first_moment_on(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        await one.send(b"first", acks=1)
        cluster.change(leader=1)
        cluster.change(leader=1)
        partition = one.partition
        assert [tuple(entry) for entry in partition.log.epochs.entries] == [(0, 0), (2, 1)]
        assert partition.end_of_epoch(0) == (0, 1)
        assert partition.end_of_epoch(1) == (0, 1)
        assert partition.end_of_epoch(2) == (2, 1)
        assert partition.end_of_epoch(3) == (-1, -1)

    in_cluster(tmp_path, story)


def test_checkpoints_are_lowered_before_anything_is_appended_to_a_truncated_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        await one.send(b"first")
        await until(lambda: two.partition.high_watermark == 1)
        cluster.cut |= {(2, 1), (1, 2)}
        cluster.refuse_proposals = True
        two.fetchers.stop()
        await one.send(b"of one alone", acks=1)
        cluster.change(leader=2)
        await two.send(b"of two", acks=1)
        await until(lambda: one.partition.leader_id == 2)
        await one.env.run_blocking(lambda: None)
        one.partition.log.flush()
        name, log = one.partition.name, one.partition.log
        await one.partitions.note_progress(one.partition).write()
        assert read_offsets(one.env.filesystem, one.path / RECOVERY_POINTS) == {name: 2}
        noted: list[int] = []
        append = Log.append

        def note(appended: Log, *args: Any) -> None:
            if appended is log:
                noted.append(read_offsets(one.env.filesystem, one.path / RECOVERY_POINTS)[name])
            append(appended, *args)

        monkeypatch.setattr(Log, "append", note)
        cluster.cut.clear()
        await until(lambda: one.values() == [b"first", b"of two"])
        assert noted == [1], "what was cut was never durable again"

    in_cluster(tmp_path, story)


def test_a_follower_whose_disk_fails_under_an_append_stops_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        assert (await one.send(b"first")).error_code == 0
        fetcher = next(iter(two.fetchers._fetchers.values()))

        append = Log.append

        def fail(log: Log, *rest: Any) -> Any:
            if log is two.partition.log:
                raise StorageError("Input/output error")
            return append(log, *rest)

        monkeypatch.setattr(Log, "append", fail)
        await one.send(b"second", acks=1)
        await until(lambda: two.directory.failure is not None)
        assert fetcher.keys == []
        # Whatever else it followed, in another directory, goes on.
        assert fetcher._resting == {} == fetcher._changed
        await until(lambda: not two.fetchers._fetchers)

    in_cluster(tmp_path, story)
    assert "background task" not in caplog.text


@pytest.mark.parametrize(
    ("error", "is_offline"),
    [
        (storage_error("read", Path("00.log"), OSError(errno.EIO, "Input/output error")), True),
        (storage_error("open", Path("00.log"), OSError(errno.EMFILE, "Too many open files")), False),
        # Not CORRUPT_MESSAGE, after which a consumer gives up, although another replica can lead.
        (CorruptLogError(Path("00.log"), 0, "its checksum is wrong"), False),
    ],
)
def test_a_disk_that_cannot_be_read_takes_its_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: StorageError, is_offline: bool
) -> None:
    """Other brokers can lead what is in it."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        assert (await one.send(b"first")).error_code == 0
        two.fetchers.stop()

        def fail(_: object) -> bytes:
            raise error

        assert (await one.send(b"second", acks=1)).error_code == 0
        monkeypatch.setattr(LogSlice, "read", fail)
        context = RequestContext(12, "test", Client(("127.0.0.1", 1), "PLAINTEXT"))
        wanted = FetchTopic(TOPIC, TOPIC_ID, [FetchPartition(0, fetch_offset=0, partition_max_bytes=1_000)])
        response: Any = one.fetch(FetchRequest(topics=[wanted], max_bytes=1_000), context)
        assert response.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (one.directory.failure is error) == is_offline

    in_cluster(tmp_path, story)


def test_a_sole_leader_commits_once_the_controller_has_confirmed_it(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        assert (await one.send(b"first")).error_code == 0
        cluster.refuse_proposals = True
        two.fetchers.stop()
        cluster.change(isr=[1], eligible_leader_replicas=[2])
        row = await one.send(b"second", timeout_ms=200)
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT, "2 could still be elected, and lacks it"
        assert one.partition.high_watermark == 1
        assert [broker.broker_id for broker in cluster.proposals[-1].topics[0].partitions[0].new_isr_with_epochs] == [1]
        cluster.refuse_proposals = False
        assert (await one.send(b"third")).error_code == 0

    in_cluster(tmp_path, story)


def test_a_leader_elected_uncleanly_confirms_its_recovery(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        await cluster.start(2)
        cluster.create((1, 2))
        # Without fetches of the other replica, nothing but the new leader epoch calls for a proposal.
        one.fetchers.stop()
        cluster.change(leader=2, isr=[2], leader_recovery_state=1)
        await until(lambda: any(proposal.broker_id == 2 for proposal in cluster.proposals))
        (row,) = cluster.proposals[-1].topics[0].partitions
        assert (row.leader_epoch, row.leader_recovery_state) == (1, 0)
        assert [broker.broker_id for broker in row.new_isr_with_epochs] == [2]

    in_cluster(tmp_path, story)
