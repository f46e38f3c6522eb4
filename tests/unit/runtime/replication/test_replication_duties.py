"""What leadership brings and takes: coordinators, near readers, deleted records, proposals of unknown fate."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from replication_world import LISTENER, TOPIC, TOPIC_ID, Broker, Cluster, in_cluster, until

from penstock.api.context import Client, RequestContext
from penstock.api.records.delete_records import delete_records
from penstock.api.records.list_offsets import list_offsets
from penstock.api.records.offset_for_leader_epoch import offset_for_leader_epoch
from penstock.core.group.contract import Effects
from penstock.core.metadata.image import ResourceType
from penstock.core.replica.fetch_session import Wanted
from penstock.core.security.authorizer import Authorizer
from penstock.model.access import ANONYMOUS
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.shards import Coordinator
from penstock.runtime.replication.fetch_rows import FetchKey
from penstock.runtime.replication.follower_view import FollowerView
from penstock.runtime.replication.leading import exclude
from penstock.runtime.security.access_control import OPEN, AccessControl
from penstock.storage.files import StorageError
from penstock.wire.messages.alter_partition import AlterPartitionRequest
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.records import Record, build_batch

CONTEXT = RequestContext(10, "test", Client(("127.0.0.1", 1), LISTENER))


async def pair(cluster: Cluster) -> tuple[Broker, Broker]:
    one, two = await cluster.start(1, "east"), await cluster.start(2, "west")
    cluster.create((1, 2))
    return one, two


def services(broker: Broker, **others: Any) -> Any:
    return SimpleNamespace(partitions=broker.partitions, image=broker.partitions.image, access=OPEN, **others)


async def read(broker: Broker, offset: int, rack: str = "") -> PartitionData:
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(topics=[FetchTopic(TOPIC, TOPIC_ID, [wanted])], rack_id=rack)
    response = broker.fetch(request, CONTEXT._replace(api_version=16))
    row: PartitionData = response.responses[0].partitions[0]
    return row


def test_a_consumer_reads_from_the_replica_in_its_rack(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await pair(cluster)
        await one.send(b"first")
        await until(lambda: two.partition.high_watermark == 1)
        assert (await read(one, 0, "west")).preferred_read_replica == 2
        assert (await read(one, 0, "west")).records == b""
        assert (await read(one, 0, "east")).preferred_read_replica == -1
        assert (await read(one, 0, "north")).preferred_read_replica == -1
        near = await read(two, 0, "west")
        assert near.preferred_read_replica == -1
        assert near.records == (await read(one, 0)).records != b""
        assert (await read(two, 9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    in_cluster(tmp_path, story)


def test_a_follower_shows_consumers_only_what_it_knows_to_be_committed(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, three = [await cluster.start(number) for number in (1, 2, 3)]
        cluster.create((1, 2, 3))
        cluster.refuse_proposals = True
        three.fetchers.stop()
        await one.send(b"uncommitted", acks=1)
        await until(lambda: two.partition.log.end_offset == 1)
        assert (await read(two, 0)).records == b""
        three.follow_again()
        await until(lambda: two.partition.high_watermark == 1)
        assert (await read(two, 0)).records

    in_cluster(tmp_path, story)


async def settled(_: object) -> None:
    """The new starts are durable."""


def test_deleted_records_are_gone_from_every_replica_before_the_answer(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await pair(cluster)
        for number in range(5):
            await one.send(b"%d" % number)
        delete = partial(delete_records, services(one, settle_deletions=settled))
        topic = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 3)])
        response = await delete(DeleteRecordsRequest([topic], timeout_ms=5_000), CONTEXT)
        assert response.topics[0].partitions[0] == (0, 3, 0)
        assert two.partition.log.start_offset == 3
        cluster.refuse_proposals = True
        two.fetchers.stop()
        topic = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 4)])
        response = await delete(DeleteRecordsRequest([topic], timeout_ms=50), CONTEXT)
        assert response.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT

    in_cluster(tmp_path, story)


def test_records_are_not_said_to_be_deleted_while_the_disk_is_full(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, _ = await pair(cluster)
        await one.send(b"first")

        async def settle(_: object) -> None:
            raise StorageError("No space left on device", errno.ENOSPC)

        topic = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 1), DeleteRecordsPartition(7, 1)])
        delete = partial(delete_records, services(one, settle_deletions=settle))
        response = await delete(DeleteRecordsRequest([topic], 5_000), CONTEXT)
        codes = [row.error_code for row in response.topics[0].partitions]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    in_cluster(tmp_path, story)


def test_a_new_leader_names_no_end_before_it_knows_what_is_committed(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await pair(cluster)
        await one.send(b"first")
        await until(lambda: two.partition.high_watermark == 1)
        one.fetchers.stop()
        two.partition.state.high_watermark = 0
        cluster.refuse_proposals = True
        cluster.change(leader=2)
        topics = [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, timestamp=-1)])]
        handle = partial(list_offsets, services(two, tier=None))
        row = handle(ListOffsetsRequest(-1, topics=topics), CONTEXT).topics[0].partitions[0]
        assert row.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        row = handle(ListOffsetsRequest(1, topics=topics), CONTEXT).topics[0].partitions[0]
        assert row.offset == 1, "a follower asks for the log's end"
        one.follow_again()
        await until(lambda: two.partition.high_watermark == 1)
        row = handle(ListOffsetsRequest(-1, topics=topics), CONTEXT).topics[0].partitions[0]
        assert (row.error_code, row.offset) == (0, 1)

    in_cluster(tmp_path, story)


def test_an_epoch_without_records_ends_where_the_one_before_it_does(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await pair(cluster)
        await one.send(b"first")
        for leader in (2, 1, 2, 1):
            cluster.change(leader=leader)
        await one.send(b"second")
        end_of = partial(offset_for_leader_epoch, services(one))
        ends = []
        for epoch in range(6):
            rows = [OffsetForLeaderPartition(0, -1, epoch)]
            response = end_of(OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(TOPIC, rows)]), CONTEXT)
            row = response.topics[0].partitions[0]
            ends.append((row.leader_epoch, row.end_offset))
        assert ends == [(0, 1), (0, 1), (0, 1), (0, 1), (4, 2), (-1, -1)]
        assert two.partition.log.epochs.entries == one.partition.log.epochs.entries

    in_cluster(tmp_path, story)


class NoteShard:
    """A shard that counts what is loaded into it."""

    def __init__(self) -> None:
        self.loads = 0

    def replay(self, key: Any, value: Any, offset: int = 0) -> None: ...

    def load(self, records: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
        self.loads += len(records)
        return []

    def loaded(self, now_ms: int) -> Effects:  # noqa: ARG002 - the contract's
        return Effects()

    def timer_fired(self, key: Any, now_ms: int) -> Effects:  # noqa: ARG002 - the contract's
        return Effects()

    def unloaded(self) -> Effects:
        return Effects()


def test_coordinators_follow_leadership(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await pair(cluster)
        hosts = {}
        for broker in (one, two):
            coordinator: Coordinator[NoteShard] = Coordinator(broker.env, "group", TOPIC, NoteShard)
            for partition in broker.partitions:
                coordinator.take(partition)
            broker.partitions.on_leader(coordinator.take)
            broker.partitions.on_resigned(coordinator.leave)
            hosts[broker.node_id] = coordinator
        assert hosts[1].host(0).is_loaded
        refused = None
        try:
            hosts[2].host(0)
        except ApiError as error:
            refused = error.code
        assert refused == ErrorCode.NOT_COORDINATOR
        await one.send(b"first")
        settled = hosts[1].host(0).settled()
        assert settled is None
        cluster.change(leader=2)
        await until(lambda: hosts[2].hosts())
        assert not hosts[1].hosts()

    in_cluster(tmp_path, story)


def test_a_proposal_of_unknown_outcome_holds_the_high_watermark_until_the_metadata_decides(tmp_path: Path) -> None:
    """The controller took it, and its answer was lost: whom it added may be elected, so it counts."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        answers: list[AlterPartitionRequest] = []
        real = cluster.alter

        def lossy(request: AlterPartitionRequest) -> Any:
            answers.append(request)
            one.hears = False
            real(request)
            raise ConnectionError("the answer was lost")

        cluster.alter = lossy  # type: ignore[method-assign]
        cluster.create((1, 2), isr=(1,))
        await until(lambda: answers)
        assert cluster.state.in_sync_replicas == (1, 2)
        two.fetchers.stop()
        cluster.alter = real  # type: ignore[method-assign]
        await until(lambda: len(cluster.proposals) > 1)
        await asyncio.sleep(0.05)
        exclude(one.partition, 2)
        row = await one.send(b"second", timeout_ms=300)
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert one.partition.high_watermark == 0
        two.follow_again()
        cluster.listen(one)
        await until(lambda: one.partition.high_watermark == 1)

    in_cluster(tmp_path, story)


def test_metadata_that_a_response_already_contained_does_not_settle_the_next_proposal(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1, 2), isr=(1,))
        leading = one.partition.leading
        assert leading is not None
        leading.propose(frozenset((1, 2)))
        one.partitions.follow([PartitionRecord(0, TOPIC_ID)])
        await one.send(b"first", acks=1)
        assert one.partition.high_watermark == 0, "broker 2 may be in sync by now, and has nothing"
        cluster.change(isr=[1])
        assert one.partition.high_watermark == 1

    in_cluster(tmp_path, story)


def test_many_partitions_open_off_the_loop_and_a_small_topic_does_not_wait_for_them(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.commit(
            TopicRecord("many", b"many" * 4),
            *(
                PartitionRecord(index, b"many" * 4, replicas=[1], isr=[1], leader=1, leader_epoch=0)
                for index in range(300)
            ),
        )
        assert len(one.partitions) == 0
        cluster.create((1,))
        assert one.partition.is_leader
        turns = 0
        while len(one.partitions) < 301:
            turns += 1
            await asyncio.sleep(0)
        assert turns > 2
        assert all(partition.is_leader for partition in one.partitions)

    in_cluster(tmp_path, story)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_that_catches_up_is_throttled_and_one_in_sync_is_not(tmp_path: Path, side: str) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.fetch_max_bytes = 2_000
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.commit(
            ConfigRecord(ResourceType.BROKER, "", f"{side}.replication.throttled.rate", "20000"),
            ConfigRecord(ResourceType.TOPIC, TOPIC, f"{side}.replication.throttled.replicas", "*"),
        )
        two.fetchers.stop()
        cluster.create((1, 2), isr=(1,))
        for _ in range(30):
            await one.send(b"x" * 1_000, acks=1)
        started = asyncio.get_running_loop().time()
        two.follow_again()
        await until(lambda: set(cluster.state.in_sync_replicas) == {1, 2})
        assert asyncio.get_running_loop().time() - started > 0.4, "30 kB at 20 kB a second, one second's worth at once"
        started = asyncio.get_running_loop().time()
        for _ in range(40):
            assert (await one.send(b"x" * 1_000)).error_code == 0
        assert asyncio.get_running_loop().time() - started < 1.5, "40 kB took as long as throttled ones"

    in_cluster(tmp_path, story)


def test_a_topic_does_not_get_the_records_of_a_deleted_topic_of_the_same_name(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        await one.send(b"of old")
        await one.crash()
        one.partition.log.close(clean=False)
        again = Broker(cluster, 1, tmp_path / "1")
        cluster.brokers[1] = again
        await again.start()
        again.image.replay(TopicRecord(TOPIC, TOPIC_ID))
        # What opening all at once does first: nothing is opened of a partition that the image has not.
        again.partitions.open_all()
        again.image.replay(RemoveTopicRecord(TOPIC_ID))
        again.partitions.follow([RemoveTopicRecord(TOPIC_ID)])
        records = [
            TopicRecord(TOPIC, b"another---topic-"),
            PartitionRecord(0, b"another---topic-", replicas=[1], isr=[1], leader=1, leader_epoch=0),
        ]
        for record in records:
            again.image.replay(record)
        again.partitions.follow(records)
        assert again.partition.log.end_offset == 0

    in_cluster(tmp_path, story)


def test_a_view_looks_at_partitions_where_something_happened(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1, 2), isr=(1,))
        partition, leading = one.partition, one.partition.leading
        assert leading is not None
        view = FollowerView(2, -1, lambda: 7)
        key = FetchKey(TOPIC, TOPIC_ID, 0)
        view.update([(key, Wanted(0, 100))], ())
        view.watch(key, partition)
        assert view.asked() == [(key, Wanted(0, 100))]
        view.mark_clean(key)
        assert view.asked() == []
        grown: list[int] = []
        view.on_grown = grown.append
        await one.send(b"first", acks=1)
        assert len(grown) == 1
        assert view.asked() == [(key, Wanted(0, 100))]
        follower = leading.follower(2)
        assert follower is not None
        assert follower.caught_up_at_ms == 7, "it had everything until then"
        view.close()
        await one.send(b"second", acks=1)
        assert len(grown) == 1
        assert view.asked() == []

    in_cluster(tmp_path, story)


def test_a_topic_created_again_while_the_deleted_one_is_opened_keeps_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        may_open, run_blocking = asyncio.Event(), one.env.run_blocking

        def held(work: Callable[[], object]) -> asyncio.Future[object]:
            async def run() -> object:
                await may_open.wait()
                return await run_blocking(work)

            return asyncio.ensure_future(run())

        def partitions(topic_id: bytes, count: int) -> list[PartitionRecord]:
            return [
                PartitionRecord(index, topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0)
                for index in range(count)
            ]

        monkeypatch.setattr(one.env, "run_blocking", held)
        cluster.commit(TopicRecord("t", b"old!" * 4), *partitions(b"old!" * 4, 20))
        await until(lambda: one.partitions._opener)
        cluster.commit(RemoveTopicRecord(b"old!" * 4))
        cluster.commit(TopicRecord("t", b"new!" * 4), *partitions(b"new!" * 4, 1))
        may_open.set()
        await until(lambda: len(one.partitions) == 1 and one.partitions.are_all_open)
        partition = one.partitions.get("t", 0)
        assert partition is not None
        assert partition.topic_id == b"new!" * 4
        assert partition.log.directory.is_dir()
        partition.append(bytearray(build_batch([Record(0, 1, None, b"kept")])), 1)
        assert partition.log.read(0, 1 << 20).read()

    in_cluster(tmp_path, story)


@pytest.mark.parametrize("version", [12, 16])
def test_a_client_that_claims_to_be_a_replica_moves_no_high_watermark(tmp_path: Path, version: int) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.access = AccessControl(Authorizer(super_users=[ANONYMOUS]))
        one, two = await pair(cluster)
        cluster.refuse_proposals = True
        two.fetchers.stop()
        await one.send(b"not committed", acks=1)
        wanted = FetchPartition(0, fetch_offset=1, partition_max_bytes=1 << 20)
        request = FetchRequest(topics=[FetchTopic(TOPIC, TOPIC_ID, [wanted])])
        if version < 15:
            request = request._replace(replica_id=2)
        else:
            request = request._replace(replica_state=ReplicaState(2, two.epoch))
        mallory = Client(("127.0.0.1", 1), LISTENER, principal="User:mallory")
        response = one.fetch(request, RequestContext(version, "test", mallory))
        assert response.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert one.partition.high_watermark == 0
        one.fetch(request, CONTEXT._replace(api_version=version))
        assert one.partition.high_watermark == 1, "the true one does"

    in_cluster(tmp_path, story)
