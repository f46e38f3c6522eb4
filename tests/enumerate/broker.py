"""A broker's data path without its network: what `node/` starts, in its order, over one process and its disk."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from enumerate.disk import inode_at
from enumerate.process import BEGIN_MS, Process
from enumerate.promises import ABORT, COMMIT, Found, Ledger, Producer, Row
from enumerate.tier import STORE, leftovers_of, make_tier
from penstock.api.context import Client, RequestContext
from penstock.api.records.delete_records import delete_records
from penstock.config.broker import node_settings
from penstock.config.node import NodeSettings
from penstock.config.topic import TopicSettings
from penstock.core.metadata.image import UNASSIGNED_DIRECTORY, Image, PartitionState, partition_record
from penstock.core.replica.producer_state import EndMarker, ProducerState
from penstock.core.replica.throttle import UNLIMITED, Throttle
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition, Uuid
from penstock.node.directories import Directories
from penstock.node.failures import CannotStart
from penstock.runtime.logs.cleaner import Cleaner
from penstock.runtime.logs.housekeeping import DISK_CHECK_MS, Housekeeping
from penstock.runtime.raft.driver import DIRECTORY as METADATA
from penstock.runtime.replication.directory_moves import DirectoryMoves
from penstock.runtime.replication.fetcher import EARLIEST, FetcherSettings
from penstock.runtime.replication.fetchers import ReplicaFetchers
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.replication.tier_start import EARLIEST_LOCAL
from penstock.runtime.security.access_control import OPEN
from penstock.runtime.tier.remote_logs import RemoteLogs
from penstock.storage.checkpoint import CLEANER_OFFSETS, RECOVERY_POINTS, CheckpointError, parse_checkpoint
from penstock.storage.files import StorageError
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.metadata_files import MetadataFileError
from penstock.storage.producers.replay import build_end_marker
from penstock.storage.segment_copy import TierHistory
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.metadata_records import RemoveTopicRecord, TopicRecord
from penstock.wire.messages.offset_for_leader_epoch import EpochEndOffset as EpochEndOffsetRow
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from penstock.wire.records import (
    ControlType,
    Record,
    build_batch,
    control_type,
    patch,
    read_header,
    read_records,
    split_batches,
)
from sim.disk import Directory, SimDisk

TOPIC, TOPIC_ID = "t", b"topic--topic--id"
FIRST, SECOND, META = Path("/data"), Path("/more"), Path("/meta")
SIZE = 1 << 20
HERE, LEADER = 1, 2
# A client that waits longer than this has got no answer.
ANSWER_S = 30.0
FETCH = FetcherSettings(wait_max_ms=100, backoff_ms=200)
SMALL = TopicSettings(segment_bytes=400, index_interval_bytes=100)
NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "metadata.log.dir": str(META),
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.retention.check.interval.ms": "1500",
    "log.cleaner.backoff.ms": "100",
    "remote.log.manager.task.interval.ms": "300",
}


class Machine:
    """What outlives a process: the disk, the boots of the machine, and what the controller and the leader know."""

    def __init__(
        self,
        directories: Iterable[Path] = (FIRST,),
        topic: TopicSettings = SMALL,
        partitions: int = 1,
        *,
        stores: bool = False,
    ) -> None:
        self.disk = SimDisk()
        log = Directory()
        log.change({METADATA: Directory()})
        log.sync()
        self.disk.root.change({"meta": log})
        if stores:
            self.disk.root.change({STORE.name: Directory()})
        self.disk.root.sync()
        self.paths = tuple(directories)
        self.topic = topic
        self.boots = self.starts = 0
        # The directory of each partition, and of each directory its id.
        self.assigned = {number: self.paths[number % len(self.paths)] for number in range(partitions)}
        self.ids: dict[Path, Uuid] = {}
        self.state = PartitionState((HERE,), (HERE,), HERE, 0, 0)
        self.leader: LeaderLog | None = None
        # The records of `__remote_log_metadata`, where old segments are copied to the store.
        self.segments: tuple[bytes, ...] | None = () if stores else None
        self.topic_id = TOPIC_ID

    @property
    def assigned_paths(self) -> tuple[Path, ...]:
        """The data directories."""
        return self.paths

    def process(self, begin_ms: int = BEGIN_MS) -> Process:
        return Process(self.disk, f"boot-{self.boots}", begin_ms)

    def after(self, disk: SimDisk, *, lost_power: bool) -> Machine:
        """The same machine after its process ended, with what is left on its disk."""
        other = Machine(self.paths, self.topic)
        other.disk, other.boots, other.starts = disk, self.boots + lost_power, self.starts
        other.assigned, other.ids, other.state = dict(self.assigned), dict(self.ids), self.state
        other.segments, other.topic_id = self.segments, self.topic_id
        return other

    def lead(self) -> None:
        """This broker is elected, as the only replica that is left."""
        epoch = self.state.leader_epoch + 50
        self.state = PartitionState((HERE,), (HERE,), HERE, epoch, epoch)

    def follow(self, leader: LeaderLog) -> None:
        """Another broker is elected."""
        self.leader = leader
        epoch = leader.epoch
        self.state = PartitionState((HERE, LEADER), (HERE, LEADER), LEADER, epoch, epoch)


class LeaderLog:
    """The log of a leader elsewhere: what it has, and what the follower here has told it."""

    def __init__(self, ledger: Ledger, epoch: int = 0) -> None:
        self.ledger = ledger
        self.epoch = epoch
        self.rows: list[Row] = []
        self.batches: dict[int, bytes] = {}
        # The first offset, and the first on disk; what is in between is in object storage.
        self.start = self.local_start = 0
        self.is_tiered = False
        # Whether the follower's log still takes records: otherwise what it reports need not be on its disk.
        self.is_sound: Callable[[], bool] = lambda: True
        # How far the follower had everything, at its last request.
        self.fetched = -1
        self.fetched_start = 0
        self._more = asyncio.Event()

    @property
    def end(self) -> int:
        return self.rows[-1].offset + 1 if self.rows else 0

    def append(self, count: int = 1, keys: int = 5, *, value: bytes | None = b"", at_ms: int = BEGIN_MS) -> None:
        """Records that the follower here will fetch."""
        for _ in range(count):
            offset = self.end
            key = b"k%d" % (offset % keys)
            content = value if value is None else b"%d/%d " % (offset, self.epoch) + value + bytes(20)
            self.put(Row(offset, self.epoch, key, content), at_ms)

    def put(self, row: Row, at_ms: int = BEGIN_MS) -> None:
        self.rows.append(row)
        self.batches[row.offset] = batch_of(row, at_ms)
        self._more.set()

    def next_leader(self, diverging_at: int, epoch: int) -> LeaderLog:
        """A leader of a later epoch that has less."""
        other = LeaderLog(self.ledger, epoch)
        other.start, other.local_start = self.start, self.local_start
        other.rows = [row for row in self.rows if row.offset < diverging_at]
        other.batches = {offset: data for offset, data in self.batches.items() if offset < diverging_at}
        return other

    async def history(self, partition: Partition, epoch: int, offset: int) -> tuple[int, TierHistory]:  # noqa: ARG002
        """What is stored in the tier with the segment that ends before what is on disk here."""
        await asyncio.sleep(0.001)
        producers, epochs = ProducerState(), LeaderEpochs()
        for row in self.rows:
            if row.offset < self.local_start:
                producers.update(read_header(self.batches[row.offset]))
                epochs.assign(row.epoch, row.offset)
        return self.local_start, TierHistory(epochs.entries, list(producers.entries))

    def wake(self) -> None:
        self._more.set()

    def close(self) -> None:
        """As a peer."""

    async def send(self, request: Any, timeout_ms: int = 0) -> Any:  # noqa: ARG002
        if isinstance(request, ListOffsetsRequest):
            await asyncio.sleep(0.001)
            return self._list_offset(request.topics[0].partitions[0])
        if isinstance(request, OffsetForLeaderEpochRequest):
            wanted = request.topics[0].partitions[0]
            end = self._end_of(wanted.leader_epoch)
            row = EpochEndOffsetRow(0, wanted.partition, end.epoch, end.end_offset)
            return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(TOPIC, [row])])
        assert isinstance(request, FetchRequest)
        rows = []
        for topic in request.topics:
            for wanted in topic.partitions:
                answer = await self._answer(wanted, request.max_wait_ms)
                rows.append(FetchableTopicResponse("", TOPIC_ID, [answer]))
        return FetchResponse(responses=rows)

    def _list_offset(self, wanted: Any) -> ListOffsetsResponse:
        offset = {EARLIEST: self.start, EARLIEST_LOCAL: self.local_start}.get(wanted.timestamp, self.end)
        epoch = next((row.epoch for row in self.rows if row.offset >= offset), self.epoch)
        row = ListOffsetsPartitionResponse(wanted.partition_index, offset=offset, leader_epoch=epoch)
        if wanted.timestamp == EARLIEST_LOCAL or (wanted.timestamp == EARLIEST and self.local_start == self.start):
            # The follower begins anew where this log does, unless it has all of it.
            known = [row for row in self.rows if row.offset < self.local_start] if self.is_tiered else []
            self.ledger.beginning(self.local_start, self.start, known)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(TOPIC, [row])])

    async def _answer(self, wanted: Any, wait_ms: int) -> PartitionData:
        offset, epoch = wanted.fetch_offset, wanted.last_fetched_epoch
        if offset < self.local_start:
            await asyncio.sleep(0.001)
            is_moved = self.start <= offset and self.start < self.local_start
            code = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE if is_moved else ErrorCode.OFFSET_OUT_OF_RANGE
            return PartitionData(wanted.partition, code)
        end = self._end_of(epoch)
        if epoch >= 0 and (end.epoch < epoch or end.end_offset < offset):
            common = self._common(offset)
            if not self.ledger.is_cutting and common < self.ledger.end:
                self.ledger.cutting(common)
            elif self.ledger.is_cutting:
                # Another leader before that truncation has ended.
                self.ledger.kept = {kind: min(end, common) for kind, end in self.ledger.kept.items()}
            await asyncio.sleep(0.001)
            return PartitionData(wanted.partition, diverging_epoch=end, high_watermark=self.end)
        if self.is_sound():
            if self.ledger.is_cutting and self.ledger.anew is None:
                self.ledger.cut()
            self.ledger.begun(offset)
            self.ledger.written(offset)
        self.fetched, self.fetched_start = offset, wanted.log_start_offset
        if offset >= self.end:
            self._more.clear()
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._more.wait()
            except TimeoutError:
                pass
        await asyncio.sleep(0.001)
        sent = [row for row in self.rows if row.offset >= offset][:4]
        for row in sent:
            self.ledger.offer(row)
        self.ledger.start_max = max(self.ledger.start_max, self.start)
        records = b"".join(self.batches[row.offset] for row in sent)
        return PartitionData(
            wanted.partition, high_watermark=self.end, log_start_offset=self.start, records=records or None
        )

    def _common(self, offset: int) -> int:
        """Where what this log has and what the ledger has part."""
        known = {row.offset: row for row in self.rows}
        same = 0
        for row in self.ledger.history:
            if row.offset >= offset or known.get(row.offset) != row:
                break
            same = row.offset + 1
        return same

    def _end_of(self, epoch: int) -> EpochEndOffset:
        if epoch >= self.epoch:
            return EpochEndOffset(epoch, self.end)
        found = [row for row in self.rows if row.epoch <= epoch]
        later = next((row.offset for row in self.rows if row.epoch > epoch), self.end)
        return EpochEndOffset(found[-1].epoch if found else -1, later)


class Broker:
    """The broker in one process. `ledgers` have what it promised, by partition."""

    def __init__(self, machine: Machine, process: Process, ledgers: dict[int, Ledger]) -> None:
        self.machine = machine
        self.process = process
        self.ledgers = ledgers
        self.settings = settings_of(machine)
        # Errors that a caller got.
        self.reported: list[Exception] = []
        # The first operation while which something else may want the event loop.
        self.serves_from = 0
        # What `read_tier` has read, by partition.
        self.tier_rows: dict[int, tuple[Row, ...]] = {}
        self.tier: RemoteLogs | None = None
        self.directories: Directories
        self.partitions: Partitions
        self.housekeeping: Housekeeping
        self.cleaner: Cleaner
        self.moves: DirectoryMoves
        self.fetchers: ReplicaFetchers

    async def start(self, *, jobs: bool = True) -> None:
        """What `node/` does, in its order. Raises what stops a node."""
        machine, env = self.machine, self.process
        machine.starts += 1
        self.directories = Directories(env, self.settings)
        self.directories.claim()
        # Before it registers, a node has no clients, and no other work than this.
        self.serves_from = len(env.steps.operations)
        machine.ids |= {one.path: one.directory_id for one in self.directories.log_directories}
        self.directories.note_registering(bytes([machine.starts]) * 16)
        epoch = machine.starts * 100
        self.directories.note_epoch(epoch)
        self.image = Image()
        self.image.replay(TopicRecord(TOPIC, machine.topic_id))
        for number in sorted(machine.assigned):
            self.image.replay(self._record(number))
        self.partitions = Partitions(
            env, HERE, self.image, lambda: machine.topic, self.directories.log_directories, SIZE
        )
        self.partitions.on_directory_failed(lambda _: self.directories.note_epoch(epoch))
        self.directories.on_failure = self.partitions.fail_directory
        await self.partitions.begin_use()
        await self.partitions.open_gradually()
        if self.partitions.are_all_open:
            self.directories.note_checked(epoch)
        if machine.segments is not None:
            self.tier = make_tier(env, machine, HERE, self.image, self.partitions, lambda: self.settings)
        self.housekeeping = Housekeeping(env, self.partitions, lambda: self.settings, self.tier)
        await self.housekeeping.watch_disks()
        self.cleaner = Cleaner(env, self.partitions, lambda: self.settings)
        assignments: Any = SimpleNamespace(
            assign=lambda *args, **options: asyncio.ensure_future(self._assign(*args, **options))
        )
        self.moves = DirectoryMoves(env, self.partitions, assignments, Throttle(lambda: UNLIMITED))
        self.moves.resume()
        peer: Any = machine.leader
        history = machine.leader.history if machine.leader is not None else None
        self.fetchers = ReplicaFetchers(env, self.partitions, lambda _: peer, FETCH, lambda: epoch, None, history)
        if jobs:
            self.housekeeping.start()
            if self.tier is not None:
                self.tier.start()
        self.fetchers.start()

    def _record(self, number: int) -> Any:
        machine = self.machine
        home = machine.ids.get(machine.assigned[number], UNASSIGNED_DIRECTORY)
        directories = tuple(home if one == HERE else UNASSIGNED_DIRECTORY for one in machine.state.replicas)
        return partition_record(machine.topic_id, number, machine.state._replace(directories=directories))

    async def _assign(self, partition: Partition, directory: Any, *, kept_records: bool = False) -> bool:  # noqa: ARG002
        await asyncio.sleep(0.001)
        self.machine.assigned[partition.name.partition] = directory.path
        return True

    def change_role(self) -> None:
        """Apply the controller's newest decision."""
        peer: Any = self.machine.leader
        self.fetchers._make_peer = lambda _: peer
        if self.machine.leader is not None:
            self.fetchers._history_of = self.machine.leader.history
        records = [self._record(number) for number in sorted(self.machine.assigned)]
        for record in records:
            self.image.replay(record)
        self.partitions.follow(records)

    def follow(self, leader: LeaderLog) -> None:
        """Follow another leader from now on."""
        self.machine.follow(leader)
        leader.is_sound = lambda: not self.partition().log.is_failed
        # Fetchers are kept by the leader's id, and this is another one.
        for fetcher in self.fetchers._fetchers.values():
            fetcher._peer, fetcher._history_of = leader, leader.history  # type: ignore[assignment]
        self.change_role()

    def delete_topic(self) -> None:
        """The controller deletes the topic."""
        record = RemoveTopicRecord(TOPIC_ID)
        self.partitions.follow([record])
        self.image.replay(record)
        if self.tier is not None:
            self.tier.follow([record])

    def accept_interrupted(self) -> None:
        """The last process died in the middle of a truncation: from now on, what is left of it is the log."""
        for number, ledger in self.ledgers.items():
            with self.process.steps.unnumbered():
                found = self.found(number)
            if ledger.is_cutting and not found.problem:
                ledger.others.append(ledger.history)
                ledger.history = list(found.rows)

    def create_topic(self) -> None:
        """The controller makes it again, under another id."""
        self.machine.topic_id = b"another-topic-id"
        for record in (TopicRecord(TOPIC, self.machine.topic_id), *map(self._record, sorted(self.machine.assigned))):
            self.image.replay(record)
            self.partitions.follow([record])

    def partition(self, number: int = 0) -> Partition:
        found = self.partitions.get(TOPIC, number)
        if found is None:
            raise StorageError(f"{TOPIC}-{number} is not open")
        return found

    def failed(self, path: Path) -> bool:
        """Whether the broker has given up the directory that a path is in."""
        if path.parts[1] == META.name:
            return False
        return any(
            one.failure is not None and path.is_relative_to(one.path) for one in self.directories.log_directories
        )

    async def attempt(self, work: Any) -> bool:
        """Wait for an answer; whether it was no error."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await settled(work() if callable(work) else work)
        except (ApiError, FileNotFoundError, TimeoutError) as error:
            self.reported.append(error)
            return False
        return True

    async def produce(
        self,
        count: int = 1,
        *,
        number: int = 0,
        acks: bool = True,
        keys: int = 5,
        value: bytes | None = b"",
        producer: tuple[int, int, int] | None = None,
        transactional: bool = False,
    ) -> bool:
        """Produce one record after the other, as a client does; False if one was refused."""
        ledger = self.ledgers[number]
        for index in range(count):
            if not await self.attempt(
                lambda index=index: self._produce(  # type: ignore[misc]
                    ledger, number, acks, keys, value, producer and (*producer[:2], producer[2] + index), transactional
                )
            ):
                return False
        return True

    async def _produce(
        self,
        ledger: Ledger,
        number: int,
        acks: bool,
        keys: int,
        value: bytes | None,
        producer: tuple[int, ...] | None,
        transactional: bool,
    ) -> None:
        if (opening := self.partitions.opening(TOPIC, b"", number, by_id=False)) is not None:
            await opening
        partition = self.partition(number)
        offset, epoch = partition.log.end_offset, partition.leader_epoch
        content = value if value is None else b"%d/%d " % (offset, epoch) + value + bytes(20)
        identity = producer or (-1, -1, -1)
        row = Row(offset, epoch, b"k%d" % (offset % keys), content, *identity, transactional)
        ledger.offer(row)
        self._check_directory(number)
        appended = partition.append(
            bytearray(batch_of(row, self.process.now_ms(), base_offset=0)), self.process.now_ms()
        )
        assert appended.base_offset == offset
        ledger.written(appended.next_offset)
        if acks:
            await partition.committed(appended.next_offset)
            ledger.synced(appended.next_offset)

    def _check_directory(self, number: int) -> None:
        self.partitions.home(self.partition(number)).check_writable()

    async def end_transaction(self, producer_id: int, epoch: int, kind: str, *, number: int = 0) -> bool:
        """Write a transaction's marker."""

        async def write() -> None:
            partition, ledger = self.partition(number), self.ledgers[number]
            row = Row(partition.log.end_offset, partition.leader_epoch, None, None, producer_id, epoch, marker=kind)
            ledger.offer(row)
            marker = EndMarker(kind == ABORT, 0, 0)
            appended = partition.append_marker(producer_id, epoch, marker, self.process.now_ms())
            ledger.written(appended.next_offset)
            await partition.committed(appended.next_offset)
            ledger.synced(appended.next_offset)

        return await self.attempt(write)

    async def delete_records(self, offset: int, *, number: int = 0) -> bool:
        """DeleteRecords, through the API's handler."""
        ledger = self.ledgers[number]
        ledger.start_max = max(ledger.start_max, offset)
        services: Any = SimpleNamespace(
            access=OPEN,
            image=self.image,
            partitions=self.partitions,
            settle_deletions=self.housekeeping.settle_deletions,
        )
        wanted = DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(number, offset)])], 5_000)
        context = RequestContext(2, None, Client(("127.0.0.1", 0), "client"))

        async def delete() -> None:
            response = await settled(partial(delete_records, services)(wanted, context))
            code = response.topics[0].partitions[0].error_code
            if code:
                raise StorageError(f"DeleteRecords was answered with error {code}")
            ledger.start_min = max(ledger.start_min, offset)

        return await self.attempt(delete)

    async def fetched(self, offset: int | None = None) -> bool:
        """Wait until the follower here has everything before an offset, or all that its leader has."""
        leader = self.machine.leader
        assert leader is not None
        leader.wake()
        wanted = leader.end if offset is None else offset

        async def wait() -> None:
            while leader.fetched < wanted or leader.fetched_start < leader.start:
                if self.directories.log_directories[0].failure is not None:
                    raise StorageError("the directory failed")
                await asyncio.sleep(0.01)

        return await self.attempt(wait)

    async def opened(self, number: int) -> None:
        """Wait for the next attempts to open a partition that could not be, if there are any."""
        for _ in range(2 * DISK_CHECK_MS // 100):
            if self.partitions.get(TOPIC, number) is not None:
                return
            await asyncio.sleep(0.1)

    async def copied(self, offset: int, number: int = 0) -> bool:
        """Wait until everything before an offset is in the store, and what may leave the disk has left it."""

        async def wait() -> None:
            assert self.tier is not None
            while self.tier.copied_offset(self.partition(number)) < offset - 1:
                self._check_directory(number)
                await asyncio.sleep(0.05)
            await self.housekeeping.retain_all()
            await asyncio.sleep(0.2)
            await self.housekeeping.retain_all()

        return await self.attempt(wait)

    async def read_tier(self) -> None:
        """Read what is only in the store, as consumers do; what cannot be read is missing."""
        for number in sorted(self.machine.assigned) if self.tier is not None else ():
            partition = self.partitions.get(TOPIC, number)
            if partition is None or self.tier is None:
                continue
            rows: dict[int, Row] = {}
            offset, end = partition.log.start_offset, partition.log.local_start_offset
            while offset < end:
                try:
                    found = await self.tier.read(partition, offset, SIZE, committed_only=False)
                except (ApiError, FileNotFoundError):
                    found = None
                here = list(rows_of(found.data)) if found is not None else []
                rows |= {row.offset: row for row in here if row.offset >= offset}
                offset = max(offset + 1, here[-1].offset + 1 if here else 0)
            self.tier_rows[number] = tuple(row for _, row in sorted(rows.items()) if row.offset < end)

    def unused_objects(self) -> list[str]:
        """What the store has for nothing."""
        names = self.process.filesystem.list_directory(STORE)
        return leftovers_of(self.machine, sorted(names), self.machine.topic_id)

    async def sync(self, number: int = 0) -> bool:
        """Have everything on disk, as the flush job does."""

        async def work() -> None:
            partition = self.partition(number)
            end = partition.log.end_offset
            await partition.sync.durable(end)
            if not (partition.log.is_failed or partition.is_truncating):
                self.ledgers[number].synced(end)

        return await self.attempt(work)

    async def stop(self) -> None:
        """A clean shutdown, as `node/` does it."""
        self.fetchers.stop()
        await self.moves.stop()
        await self.partitions.close_all()
        await settled(self.housekeeping.finish(self.machine.starts * 100))

    def found(self, number: int = 0) -> Found:
        """What the process sees of a partition."""
        path = self.machine.assigned[number]
        size = sum(len(one.data) for one in files_of(self.machine.disk, path / f"{TOPIC}-{number}") if one is not None)
        name = TopicPartition(TOPIC, number)
        partition = self.partitions.get(*name)
        if partition is None:
            unopened = self.partitions._unopened.get(name)
            return Found(problem=f"{unopened[1] if unopened is not None else 'it is not here'}", size=size)
        log = partition.log
        home = self.partitions.home(partition)
        try:
            rows = tuple(read_rows(log))
            check_look_ups(log, rows)
        except (ApiError, FileNotFoundError) as error:
            return Found(problem=f"it cannot be read: {error}", size=size, end=log.end_offset)
        producers = {
            one.producer_id: Producer(one.producer_epoch, one.last_sequence, one.transaction_first_offset)
            for one in log.producers.entries
        }
        aborted = {
            (one.producer_id, one.first_offset, one.last_offset)
            for one in log.aborted.overlapping(log.local_start_offset, log.end_offset)
        }
        return Found(
            "",
            rows,
            log.start_offset,
            log.local_start_offset,
            log.end_offset,
            tuple(tuple(entry) for entry in log.epochs.entries),
            tuple(sorted(producers.items())),
            tuple(sorted(aborted)),
            size=size,
            tier_rows=self.tier_rows.get(number),
            is_trusted=self.directories.predecessor.epoch_in(home) >= 0,
        )


STARTS_NOT = (CannotStart, MetadataFileError, StorageError, FileNotFoundError)


def settings_of(machine: Machine) -> NodeSettings:
    known = _SETTINGS.get(machine.paths)
    if known is None:
        known, _ = node_settings({**NODE, "log.dirs": ",".join(map(str, machine.paths))})
        _SETTINGS[machine.paths] = known
    return known


_SETTINGS: dict[tuple[Path, ...], NodeSettings] = {}


async def settled(answer: Any) -> Any:
    """What a function returns, now or later."""
    return await answer if inspect.isawaitable(answer) else answer


def batch_of(row: Row, now_ms: int, base_offset: int | None = None) -> bytes:
    """The batch of one record."""
    at = row.offset if base_offset is None else base_offset
    if row.marker:
        marker = EndMarker(row.marker == ABORT, 0, 0)
        data = bytearray(build_end_marker(row.producer_id, row.producer_epoch, marker, now_ms))
        patch(data, 0, at, row.epoch)
        return bytes(data)
    return build_batch(
        [Record(at, now_ms, row.key, row.value)],
        base_offset=at,
        leader_epoch=row.epoch,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        base_sequence=row.sequence,
        transactional=row.is_transactional,
    )


def read_rows(log: Any) -> Iterable[Row]:
    """Every record on disk, read as a follower reads."""
    offset = log.local_start_offset
    while offset < log.end_offset:
        data = log.read(offset, SIZE).read()
        if not data:
            return
        yield from rows_of(data)
        offset = split_batches(data, SIZE)[-1][1].next_offset


def check_look_ups(log: Any, rows: Sequence[Row]) -> None:
    """A read from any offset gets what comes there; raises StorageError."""
    for offset in range(log.local_start_offset, rows[-1].offset + 1 if rows else 0):
        data = log.read(offset, SIZE).read()
        found = next((row.offset for row in rows_of(data) if row.offset >= offset), None)
        if found is not None and found != next(row.offset for row in rows if row.offset >= offset):
            raise StorageError(f"a read from {offset} on gets {found}")


def rows_of(data: Any) -> Iterable[Row]:
    """The records of whole batches."""
    for position, header in split_batches(data, SIZE):
        for record in read_records(data, SIZE, position):
            marker = ""
            if header.is_control:
                marker = ABORT if control_type(record.key) == ControlType.ABORT else COMMIT
            yield Row(
                record.offset,
                header.partition_leader_epoch,
                None if marker else record.key,
                None if marker else record.value,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.is_transactional and not marker,
                marker,
            )


def files_of(disk: SimDisk, path: Path) -> Iterable[Any]:
    """The files of a directory."""
    found: Any = disk.root
    for part in path.parts[1:]:
        found = found.entries.get(part) if isinstance(found, Directory) else None
    if isinstance(found, Directory):
        yield from (entry for name, entry in found.entries.items() if name.endswith(".log"))


def checkpoint_of(disk: SimDisk, path: Path, number: int) -> int:
    """What a checkpoint file has for a partition; 0 if nothing, or if it is damaged."""
    inode = inode_at(disk, path)
    if inode is None:
        return 0
    try:
        lines = parse_checkpoint(bytes(inode.data))
    except CheckpointError:
        return 0
    rows = [line.split() for line in lines]
    return next((int(row[2]) for row in rows if row[:2] == [TOPIC, str(number)]), 0)


def checkpoints_of(disk: SimDisk, home: Path, number: int) -> tuple[int, int]:
    """The recovery point and the cleaner's checkpoint of a partition, before a start changes them."""
    return checkpoint_of(disk, home / RECOVERY_POINTS, number), checkpoint_of(disk, home / CLEANER_OFFSETS, number)


Look = Callable[[Broker], Any]
