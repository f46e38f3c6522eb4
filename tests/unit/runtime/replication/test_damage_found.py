"""Damage in a segment that is open: it is not served, another replica leads, and the damaged one begins anew."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from replication_world import SIZE, TOPIC, TOPIC_ID, Broker, Cluster, in_cluster, until

from penstock.api.context import Client, RequestContext
from penstock.core.metadata import alter_partition, directories
from penstock.core.metadata.election_rules import ElectionRules
from penstock.core.metadata.image import ELIGIBLE_LEADER_REPLICAS_VERSION, LOST_DIRECTORY, ResourceType
from penstock.model.errors import ErrorCode
from penstock.runtime.logs.cleaner import Cleaner
from penstock.runtime.logs.scrubber import Scrubber
from penstock.runtime.replication import damaged_replicas
from penstock.runtime.replication.damaged_replicas import DamagedReplicas
from penstock.runtime.replication.directory_assignments import DirectoryAssignments
from penstock.storage.compaction.clean import CompactionError
from penstock.storage.files import CorruptLogError
from penstock.storage.names import STRAY_SUFFIX
from penstock.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.metadata_records import ConfigRecord, FeatureLevelRecord

RULES = ElectionRules()
COUNT = 12
VALUES = [b"value %d" % number for number in range(COUNT)]


class DecidedCluster(Cluster):
    """A cluster with the controller's own decisions about replicas."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.damaged: dict[int, DamagedReplicas] = {}
        self.scrubbers: dict[int, Scrubber] = {}
        self.reports: list[tuple[int, bytes, bool]] = []

    async def start(self, node_id: int, rack: str | None = None) -> Broker:
        broker = await super().start(node_id, rack)
        assignments = DirectoryAssignments(broker.env, broker.partitions, self._assign, lambda: broker.epoch)
        assignments.start()
        damaged = self.damaged[node_id] = DamagedReplicas(broker.env, broker.partitions, assignments)
        damaged.start()
        settings: Any = SimpleNamespace(penstock_log_scrub_bytes_per_second=1 << 30)
        self.scrubbers[node_id] = Scrubber(broker.env, broker.partitions, lambda: settings)
        return broker

    async def _assign(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        for directory in request.directories:
            for topic in directory.topics:
                self.reports += [(request.broker_id, directory.id, row.kept_records) for row in topic.partitions]
        decided = directories.assign_replicas(self.image, request, RULES)
        self.commit(*decided.records)
        return AssignReplicasToDirsResponse(directories=decided.response)

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        decided = alter_partition.alter_partition(self.image, request, RULES)
        self.commit(*decided.records)
        return AlterPartitionResponse(topics=decided.response)

    async def fill(self, *nodes: int, min_in_sync: int = 1, replicas: tuple[int, ...] = ()) -> list[Broker]:
        """Brokers with a replica each of a partition of many segments; other `replicas` have none yet."""
        brokers = [await self.start(node) for node in nodes]
        self.commit(FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, feature_level=1))
        self.commit(ConfigRecord(ResourceType.TOPIC, TOPIC, "internal.segment.bytes", "200"))
        self.create(replicas or nodes, min_in_sync=min_in_sync, isr=nodes)
        await until(lambda: all(self.state.directory(broker.node_id) != bytes(16) for broker in brokers))
        for value in VALUES:
            assert (await brokers[0].send(value)).error_code == 0
        await until(lambda: all(broker.partition.log.end_offset == COUNT for broker in brokers))
        return brokers


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damaged_replicas, "LOOK_S", 0.01)
    monkeypatch.setattr(damaged_replicas, "REPORT_MS", 50)


def play(path: Path, story: Callable[[Any], Any]) -> None:
    in_cluster(path, story, DecidedCluster)


def segment(broker: Broker) -> Path:
    return broker.path / f"{TOPIC}-0" / f"{0:020d}.log"


def flip(broker: Broker, position: int = -3) -> bytes:
    """Flip a bit of a value in the first segment; returns what it has then."""
    data = bytearray(segment(broker).read_bytes())
    data[position] ^= 0x10
    segment(broker).write_bytes(data)
    broker.partition.log.close_files()
    return bytes(data)


def read(broker: Broker, offset: int) -> Any:
    context = RequestContext(12, "test", Client(("127.0.0.1", 1), "PLAINTEXT"))
    wanted = FetchTopic(TOPIC, TOPIC_ID, [FetchPartition(0, fetch_offset=offset, partition_max_bytes=SIZE)])
    response: Any = broker.fetch(FetchRequest(topics=[wanted], max_bytes=SIZE), context)
    return response.responses[0].partitions[0]


def first_damaged(broker: Broker) -> int:
    """The offset of the batch that `flip` damages: the last one of the first segment."""
    names = sorted(path.name for path in segment(broker).parent.glob("*.log"))
    return int(names[1].split(".")[0]) - 1


def strays(broker: Broker) -> list[Path]:
    return [path for path in broker.path.iterdir() if path.name.endswith(STRAY_SUFFIX)]


def test_a_leader_serves_no_damage_and_hands_over_and_is_replicated_anew(tmp_path: Path) -> None:
    async def story(cluster: DecidedCluster) -> None:
        one, two, three = await cluster.fill(1, 2, 3, min_in_sync=2)
        damaged = flip(one)
        offset = first_damaged(one)
        row = read(one, offset)
        assert (row.error_code, row.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b""), "a client asks again, elsewhere"
        await until(lambda: cluster.state.leader != 1)
        leader = cluster.brokers[cluster.state.leader]
        await until(lambda: leader.partition.is_leader and set(cluster.state.in_sync_replicas) == {1, 2, 3})
        assert one.values() == two.values() == three.values() == VALUES, "no replica has lost anything"
        (stray,) = strays(one)
        assert (stray / segment(one).name).read_bytes() == damaged, "kept as it was"
        assert not strays(two)
        assert not strays(three)
        assert cluster.reports[-2:] == [(1, LOST_DIRECTORY, True), (1, one.directory.directory_id, False)]
        assert (cluster.damaged[1].begun_anew, len(cluster.damaged[1])) == (1, 0)
        assert (await leader.send(b"after")).error_code == 0

    play(tmp_path, story)


def test_a_damaged_replica_is_not_emptied_before_the_other_one_has_confirmed_that_it_is_alone(tmp_path: Path) -> None:
    """Until then what it has may be on no other disk."""

    async def story(cluster: DecidedCluster) -> None:
        one, two = await cluster.fill(1, 2)
        confirm, cluster.alter = cluster.alter, Cluster.alter.__get__(cluster)  # type: ignore[method-assign]
        cluster.refuse_proposals = True
        flip(one)
        read(one, first_damaged(one))
        await until(lambda: cluster.state.leader == 2)
        asked = len(cluster.proposals)
        await until(lambda: len(cluster.proposals) > asked + 2)
        assert cluster.state.eligible_leader_replicas == (1,)
        assert not strays(one)
        cluster.alter = confirm  # type: ignore[method-assign]
        await until(lambda: set(cluster.state.in_sync_replicas) == {1, 2})
        assert one.values() == two.values() == VALUES
        assert len(strays(one)) == 1

    play(tmp_path, story)


def test_where_a_commit_needs_every_replica_the_damaged_one_begins_anew_too(tmp_path: Path) -> None:
    async def story(cluster: DecidedCluster) -> None:
        one, two = await cluster.fill(1, 2, min_in_sync=2)
        flip(one)
        read(one, first_damaged(one))
        await until(lambda: cluster.state.leader == 2 and set(cluster.state.in_sync_replicas) == {1, 2})
        assert one.values() == two.values() == VALUES
        assert len(strays(one)) == 1

    play(tmp_path, story)


def test_a_damaged_replica_leads_again_if_the_others_are_gone_before_it_was_emptied(tmp_path: Path) -> None:
    async def story(cluster: DecidedCluster) -> None:
        one, _ = await cluster.fill(1, 2)
        cluster.alter = Cluster.alter.__get__(cluster)  # type: ignore[method-assign]
        cluster.refuse_proposals = True
        flip(one)
        read(one, first_damaged(one))
        await until(lambda: cluster.state.leader == 2)
        cluster.change(leader=-1, isr=[], eligible_leader_replicas=[2, 1], last_known_elr=[2])
        await until(lambda: cluster.state.leader == 1)
        assert not strays(one)
        assert read(one, first_damaged(one) + 1).error_code == 0

    play(tmp_path, story)


def test_the_last_copy_stays_and_is_read_around_the_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: DecidedCluster) -> None:
        (one,) = await cluster.fill(1)
        flip(one)
        offset = first_damaged(one)
        with caplog.at_level(logging.ERROR):
            assert read(one, offset).error_code == ErrorCode.CORRUPT_MESSAGE
            await until(lambda: "stays in service although it is damaged" in caplog.text)
        row = read(one, offset + 1)
        assert (row.error_code, len(row.records) > 0) == (0, True)
        assert read(one, 0).error_code == 0
        assert (await one.send(b"more")).error_code == 0
        assert not strays(one)
        assert cluster.state.leader == 1
        assert len(cluster.damaged[1]) == 1
        assert str(segment(one)) in caplog.text

    play(tmp_path, story)


def test_damage_that_is_not_found_again_is_not_acted_on(tmp_path: Path) -> None:
    async def story(cluster: DecidedCluster) -> None:
        one, _ = await cluster.fill(1, 2)
        one.partitions.note_damage(one.partition, CorruptLogError(segment(one), 0, "of the memory, not the disk"))
        await until(lambda: not any("search" in task.get_name() for task in one.env._tasks))
        assert (len(cluster.damaged[1]), cluster.state.leader) == (0, 1)

    play(tmp_path, story)


def test_scrubbing_finds_what_no_client_reads(tmp_path: Path) -> None:
    async def story(cluster: DecidedCluster) -> None:
        _, two, _ = await cluster.fill(1, 2, 3, min_in_sync=2)
        flip(two)
        epoch = cluster.state.leader_epoch
        scrubber = cluster.scrubbers[2]
        await scrubber.scrub(two.directory)
        assert scrubber.damage_found == 1
        await until(lambda: cluster.damaged[2].begun_anew and set(cluster.state.in_sync_replicas) == {1, 2, 3})
        assert two.values() == VALUES
        assert (cluster.state.leader, cluster.state.leader_epoch) == (1, epoch + 1)
        before, closed = scrubber.bytes_checked, two.partition.log.size_bytes - two.partition.log.newest_segment_bytes
        await scrubber.scrub(two.directory)
        assert (scrubber.damage_found, scrubber.bytes_checked - before) == (1, closed)

    play(tmp_path, story)


def test_a_follower_that_meets_damage_has_another_leader_soon(tmp_path: Path) -> None:
    async def story(cluster: DecidedCluster) -> None:
        one, _ = await cluster.fill(1, 2, replicas=(1, 2, 3))
        flip(one)
        three = await cluster.start(3)
        await until(lambda: cluster.state.leader == 2 and set(cluster.state.in_sync_replicas) == {1, 2, 3}, 10)
        assert three.values() == one.values() == VALUES

    play(tmp_path, story)


def test_a_compaction_that_meets_damage_has_the_replica_begin_anew(tmp_path: Path) -> None:
    async def story(cluster: DecidedCluster) -> None:
        one, _, _ = await cluster.fill(1, 2, 3, min_in_sync=2)
        settings: Any = None
        cleaner = Cleaner(one.env, one.partitions, settings)
        flip(one)
        cleaner._give_up(one.partition, CompactionError("a batch is damaged", is_damage=True))
        await until(lambda: cluster.state.leader != 1 and set(cluster.state.in_sync_replicas) == {1, 2, 3})
        assert one.values() == VALUES
        assert cleaner.uncleanable == {}, "it can be cleaned again"

    play(tmp_path, story)


def test_coordinators_learn_of_a_leader_that_begins_anew_before_it_follows(tmp_path: Path) -> None:
    """The metadata may have another leader already, which is only applied once the new log is open."""

    async def story(cluster: DecidedCluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        former = one.partition
        resigned: list[Any] = []
        one.partitions.on_resigned(resigned.append)
        damage = CorruptLogError(segment(one), 0, "a bit has changed")
        one.partitions.begin_anew(former.name, TOPIC_ID, damage)
        assert resigned == [former]

    play(tmp_path, story)
