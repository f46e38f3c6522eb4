"""Leaders and followers over real sockets: what is acknowledged stays, whichever node fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from zlib import crc32

import pytest
from replication_world import TOPIC, TOPIC_ID, Cluster, in_cluster, three, until

from penstock.api.context import Client, RequestContext
from penstock.config.node import NodeSettings
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.logs.directories import LOG_START_OFFSETS
from penstock.runtime.replication import replica_store
from penstock.runtime.replication.leading import delete_records
from penstock.storage.checkpoint import RECOVERY_POINTS, read_offsets, write_offsets
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from penstock.wire.messages.metadata_records import FenceBrokerRecord, UnfenceBrokerRecord, UnregisterBrokerRecord
from penstock.wire.records import Record, build_batch


def test_records_reach_every_replica_before_they_are_acknowledged(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, three_ = await three(cluster)
        for number in range(20):
            row = await one.send(b"%d" % number)
            assert row.error_code == 0
            assert row.base_offset == number
            assert two.partition.log.end_offset > number
            assert three_.partition.log.end_offset > number
        assert one.values() == two.values() == three_.values()
        await until(lambda: two.partition.high_watermark == three_.partition.high_watermark == 20)

    in_cluster(tmp_path, story)


def test_a_follower_spreads_over_more_connections_while_it_follows(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, _ = await three(cluster)
        await one.send(b"first")
        assert list(two.fetchers._fetchers) == [(1, 0)]
        slot = crc32(str(two.partition.name).encode()) % 5
        assert slot != 0
        two.fetchers.spread(cast(NodeSettings, SimpleNamespace(num_replica_fetchers=5)))
        await until(lambda: list(two.fetchers._fetchers) == [(1, slot)])
        assert (await one.send(b"second")).error_code == 0
        assert two.values() == [b"first", b"second"]

    in_cluster(tmp_path, story)


def test_a_replica_in_sync_that_is_cut_off_holds_acknowledgements_back(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, _ = await three(cluster)
        await one.send(b"first")
        cluster.refuse_proposals = True
        two.fetchers.stop()
        row = await one.send(b"second", timeout_ms=200)
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert one.partition.high_watermark == 1
        waiting = asyncio.ensure_future(one.send(b"third"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        cluster.change(isr=[1, 3])
        assert (await waiting).error_code == 0
        assert one.partition.high_watermark == 3

    in_cluster(tmp_path, story)


def test_a_lagging_replica_leaves_and_comes_back_when_it_has_caught_up(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, _ = await three(cluster)
        await one.send(b"first")
        two.fetchers.stop()
        assert (await one.send(b"second")).error_code == 0, "the replica that lags leaves within the limit"
        assert cluster.state.in_sync_replicas == (1, 3)
        await two.crash()
        two = await cluster.start(2)
        await until(lambda: set(cluster.state.in_sync_replicas) == {1, 2, 3})
        assert two.values() == [b"first", b"second"]
        asked = cluster.proposals[-1].topics[0].partitions[0].new_isr_with_epochs
        assert (2, two.epoch) in asked, "the controller learns which incarnation caught up"

    in_cluster(tmp_path, story)


def test_a_new_leader_continues_and_the_old_one_truncates_uncommitted_records(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, three_ = await three(cluster)
        await one.send(b"kept")
        await until(lambda: two.partition.high_watermark == three_.partition.high_watermark == 1)
        two.fetchers.stop()
        three_.fetchers.stop()
        one.hears = False
        waiting = [asyncio.ensure_future(one.send(b"lost-%d" % number)) for number in range(3)]
        await asyncio.sleep(0)
        cluster.change(leader=2, isr=[2, 3])
        three_.follow_again()
        assert (await two.send(b"new")).error_code == 0
        assert (await one.send(b"zombie", timeout_ms=100)).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert one.partition.high_watermark == 1
        one.directory.recovery_points[one.partition.name] = 4
        cluster.listen(one)
        for answer in waiting:
            assert (await answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await until(lambda: one.values() == [b"kept", b"new"])
        await until(lambda: set(cluster.state.in_sync_replicas) == {1, 2, 3})
        assert one.partition.log.epochs.entries == two.partition.log.epochs.entries
        noted = read_offsets(one.env.filesystem, one.path / RECOVERY_POINTS)
        assert noted[one.partition.name] <= 1, "what was appended since may be torn by a crash"

    in_cluster(tmp_path, story)


def test_a_client_of_the_wrong_broker_gets_the_leader(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, _ = await three(cluster)
        row = await two.send(b"astray")
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert row.current_leader == (1, 0)
        with pytest.raises(ApiError) as refused:
            two.partitions.lookup(TOPIC, b"", 0, by_id=False)
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [(end.node_id, end.port) for end in two.last_response.node_endpoints] == [(1, one.listener.port)]

    in_cluster(tmp_path, story)


def test_a_follower_that_lost_its_tail_gets_it_again(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, _ = await three(cluster)
        for number in range(10):
            await one.send(b"%d" % number)
        await two.crash()
        cluster.change(isr=[1, 3])
        two.partition.log.truncate_to(4)
        two.partition.log.close(clean=False)
        two = await cluster.start(2)
        assert two.partition.log.end_offset == 4
        await until(lambda: set(cluster.state.in_sync_replicas) == {1, 2, 3})
        assert two.values() == one.values()
        assert len(two.values()) == 10

    in_cluster(tmp_path, story)


def test_a_follower_far_behind_starts_where_the_leaders_log_begins(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = [await cluster.start(number) for number in (1, 2)]
        cluster.create((1, 2), isr=(1,))
        two.fetchers.stop()
        for number in range(10):
            await one.send(b"%d" % number)
        delete_records(one.partition, 7)
        await two.crash()
        two = await cluster.start(2)
        await until(lambda: set(cluster.state.in_sync_replicas) == {1, 2})
        assert two.partition.log.start_offset == 7
        assert two.values() == [b"7", b"8", b"9"]

    in_cluster(tmp_path, story)


def test_a_follower_starts_within_a_batch_where_the_leaders_log_begins_there(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = [await cluster.start(number) for number in (1, 2)]
        cluster.create((1, 2), isr=(1,))
        two.fetchers.stop()
        now_ms = one.env.now_ms()
        await one.send(b"0")
        records = [Record(number, now_ms, None, b"%d" % (number + 1)) for number in range(4)]
        one.partition.append(bytearray(build_batch(records)), now_ms)
        await one.send(b"5")
        delete_records(one.partition, 3)
        await two.crash()
        two = await cluster.start(2)
        await until(lambda: set(cluster.state.in_sync_replicas) == {1, 2})
        assert two.partition.log.start_offset == 3
        assert [value for value in two.values() if value >= b"3"] == [b"3", b"4", b"5"]
        noted = read_offsets(two.env.filesystem, two.directory.path / RECOVERY_POINTS)
        assert noted.get(two.partition.name, 0) <= 1, "the batch that begins at 1 was not synced"
        assert (await one.send(b"6")).error_code == 0

    in_cluster(tmp_path, story)


def test_a_directory_whose_maker_was_killed_is_synced_with_its_first_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        directory = one.partition.log.directory
        await one.crash()
        one.partition.log.close(clean=False)
        synced: list[Path] = []
        monkeypatch.setattr(replica_store, "sync_partition_metadata", lambda _, path: synced.append(path))
        one = await cluster.start(1)
        assert (await one.send(b"first")).error_code == 0
        assert synced == [directory]

    in_cluster(tmp_path, story)


def test_deleted_records_were_committed_whatever_the_checkpoint_contains(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = [await cluster.start(number) for number in (1, 2)]
        cluster.create((1, 2))
        for number in range(5):
            await one.send(b"%d" % number)
        await one.crash()
        await two.crash()
        one.partition.log.close(clean=False)
        # The start was noted, and the high watermark was not.
        write_offsets(one.env.filesystem, one.directory.path / LOG_START_OFFSETS, {one.partition.name: 3})
        cluster.refuse_proposals = True
        one = await cluster.start(1)
        assert (one.partition.log.start_offset, one.partition.high_watermark) == (3, 3)
        # A reader that is ahead of it waits; it is not sent back to the start.
        assert not one.partition.read(5, 1000, committed_only=False, minimum_one_batch=True).read()

    in_cluster(tmp_path, story)


def test_too_few_in_sync_replicas_refuse_before_and_after_the_append(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, three_ = await three(cluster, min_in_sync=2)
        await one.send(b"first")
        cluster.refuse_proposals = True
        two.fetchers.stop()
        three_.fetchers.stop()
        waiting = asyncio.ensure_future(one.send(b"second"))
        await asyncio.sleep(0.05)
        cluster.change(isr=[1])
        assert (await waiting).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert one.partition.high_watermark == 1, "below min.insync.replicas nothing is committed"
        assert (await one.send(b"third")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await one.send(b"fourth", acks=1)).error_code == 0
        assert one.partition.high_watermark == 1
        cluster.change(isr=[1, 2])
        assert one.partition.high_watermark == 1

    in_cluster(tmp_path, story)


def test_the_last_replica_in_sync_syncs_what_it_acknowledges(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, _ = await three(cluster)
        await one.send(b"first")
        log = one.partition.log
        assert log.flushed_offset < 1, "while others hold it, it need not be on this disk"
        cluster.refuse_proposals = True
        cluster.change(isr=[1])
        await until(lambda: log.flushed_offset == 1)
        await one.send(b"second")
        assert log.flushed_offset == 2
        assert two.partition.high_watermark <= 2

    in_cluster(tmp_path, story)


def test_a_replica_that_is_moved_away_is_removed(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, three_ = await three(cluster)
        await one.send(b"first")
        removed: list[str] = []
        three_.partitions.on_removed(lambda partition: removed.append(str(partition.name)))
        cluster.change(replicas=[1, 2], isr=[1, 2])
        assert three_.partitions.get(TOPIC, 0) is None
        assert removed == [f"{TOPIC}-0"]
        assert not (three_.path / f"{TOPIC}-0").exists()
        assert (await one.send(b"second")).error_code == 0
        with pytest.raises(ApiError):
            three_.partitions.replica(TOPIC, b"", 0, by_id=False)
        assert two.partition.log.end_offset == 2

    in_cluster(tmp_path, story)


def test_a_fetch_of_a_brokers_former_life_moves_nothing(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, _ = await three(cluster)
        await one.send(b"first")
        cluster.refuse_proposals = True
        former, two.epoch = two.epoch, 1
        assert former > 1
        await asyncio.sleep(0.2)
        row = await one.send(b"second", timeout_ms=200)
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
        two.epoch = former
        await until(lambda: one.partition.high_watermark == 2)

    in_cluster(tmp_path, story)


def test_a_repeated_batch_is_waited_for_where_it_was_first_written(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        batch = build_batch([Record(0, 1, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0)
        first = one.partition.append(bytearray(batch), 1)
        assert first.next_offset == 1
        assert one.partition.append(bytearray(batch), 2) == first

    in_cluster(tmp_path, story)


def test_a_late_fetch_of_an_earlier_leader_epoch_counts_for_nothing(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2), min_in_sync=1)
        await one.send(b"first")
        await until(lambda: one.partition.high_watermark == 1)
        cluster.refuse_proposals = True
        two.fetchers.stop()
        cluster.change(leader=1)
        await one.send(b"second", acks=1)
        late = FetchPartition(0, 0, 2, 0, 0, 1 << 20)
        request = FetchRequest(
            replica_state=ReplicaState(2, two.epoch),
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(TOPIC, TOPIC_ID, [late])],
        )
        response = one.fetch(request, RequestContext(16, "broker-2", Client(("127.0.0.1", 1), "PLAINTEXT")))
        if asyncio.isfuture(response):
            response = await response
        assert response.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert one.partition.leading is not None
        assert one.partition.leading.follower(2).end_offset == -1, "nothing was shown in this epoch"

    in_cluster(tmp_path, story)


def test_outdated_in_sync_replicas_change_nothing(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1, 2, 3), isr=(1, 2, 3))
        known = cluster.state
        fewer = known._replace(in_sync_replicas=(1, 2), partition_epoch=known.partition_epoch + 1)
        all_again = known._replace(partition_epoch=known.partition_epoch + 2)
        for news in (fewer, all_again, fewer):
            one.partition.settle(news, 0)
        assert one.partition.leading is not None
        assert one.partition.leading.in_sync_replicas == {1, 2, 3}
        assert one.partition.partition_epoch == all_again.partition_epoch

    in_cluster(tmp_path, story)


def test_a_quiet_replica_joins_once_the_controller_lets_it(tmp_path: Path) -> None:
    """It has everything and nothing is appended: its fetches alone must bring it back."""

    async def story(cluster: Cluster) -> None:
        one, _, _ = await three(cluster, min_in_sync=2)
        await one.send(b"first")
        await asyncio.sleep(0.15)
        cluster.commit(FenceBrokerRecord(2, 12), FenceBrokerRecord(3, 13))
        cluster.change(isr=[1])
        await asyncio.sleep(0.25)
        assert cluster.state.in_sync_replicas == (1,)
        cluster.commit(UnfenceBrokerRecord(2, 12), UnfenceBrokerRecord(3, 13))
        await until(lambda: set(cluster.state.in_sync_replicas) == {1, 2, 3})
        assert (await one.send(b"second")).error_code == 0

    in_cluster(tmp_path, story)


def test_a_follower_whose_broker_is_unregistered_holds_nothing_back(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, _ = await three(cluster)
        cluster.refuse_proposals = True
        cluster.change(isr=(1, 2))
        leading = one.partition.leading
        assert leading is not None
        await cluster.brokers[3].crash()
        follower = leading.follower(3)
        assert follower is not None
        follower.is_joining = True
        sent = asyncio.ensure_future(one.send(b"v"))
        await until(lambda: two.partition.log.end_offset == 1)
        assert one.partition.high_watermark == 0
        cluster.commit(UnregisterBrokerRecord(3, cluster.brokers.pop(3).epoch))
        await until(lambda: one.partition.high_watermark == 1)
        assert (await sent).error_code == 0

    in_cluster(tmp_path, story)
