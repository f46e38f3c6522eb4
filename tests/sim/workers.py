"""Workers of a share group: they take records of one partition, and accept, release, reject, stall and crash.

A `Bench` is a place that always has a worker at it. `Office` sets the group up and reads its dead letters.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from penstock.core.share.acknowledgements import AckType
from penstock.core.share.dead_letters import read_account
from penstock.core.share.delays import due_ms_of
from penstock.core.share.state import ShareKey
from penstock.model.errors import ErrorCode
from penstock.wire.messages import initialize_share_group_state as beginning
from penstock.wire.messages import share_acknowledge as acknowledging
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.settle_share_record import SettleShareRecordRequest
from penstock.wire.messages.share_fetch import FetchPartition as SharedPartition
from penstock.wire.messages.share_fetch import FetchTopic as SharedTopic
from penstock.wire.messages.share_fetch import ShareFetchRequest
from penstock.wire.messages.take_share_records import TakeShareRecordsRequest
from penstock.wire.records import Record, read_records, split_batches
from sim.wire import BACKOFF_S, Cluster, Failed
from support.history import Status
from support.history_jobs import Delivery, JobBook, Letter

GROUP = "workers"
# The member that all workers of a gateway are.
GATEWAY = "gateway"
LETTERS = "dlq.letters"
LETTER_PARTITIONS = 2
PARTITION = 0
SHARE = 2
GROUP_RESOURCE = 32
BYTES_MAX = 1 << 20
WAIT_MS = 300
RECORDS_MAX = 5
LOCK_S = 1.0
DELIVERIES_MAX = 3
# What a worker does with a record, in percent; the rest is accepted. One that stalls speaks after its lock has ended.
REJECTED, RELEASED, STALLED = 8, 10, 3
REFUSED = frozenset(
    {
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    }
)


class Worker:
    """One member of the group."""

    def __init__(self, name: str, cluster: Cluster, topic: str, book: JobBook, wall_start_s: float) -> None:
        self.name = name
        self.cluster = cluster
        # Whether it does nothing but its work.
        self.is_diligent = False
        self._topic = topic
        self._book = book
        self._wall_start_s = wall_start_s
        self._epoch = 0
        self._session_at: tuple[str, int] | None = None

    async def run(self) -> None:
        """Work for ever."""
        while True:
            try:
                await self._work()
            except Failed:
                self._session_at = None
                await asyncio.sleep(BACKOFF_S)
                await self.cluster.refresh([self._topic])

    async def _work(self) -> None:
        address = self.cluster.leader_address(self._topic, PARTITION)
        if address is None:
            raise Failed("no leader is known", maybe_done=False)
        if address != self._session_at:
            # A session is on one connection; another one begins anew.
            self.cluster.close()
            self._session_at, self._epoch = address, 0
        taken = await self._take(address)
        random = self.cluster.random
        if not taken:
            return
        stalls = not self.is_diligent and random.randrange(100) < STALLED * len(taken)
        await asyncio.sleep(random.uniform(LOCK_S, 2 * LOCK_S) if stalls else random.uniform(0.0, 0.1))
        by_kind: dict[AckType, list[Delivery]] = {}
        for delivery in taken:
            by_kind.setdefault(self._decide(), []).append(delivery)
        for kind, deliveries in by_kind.items():
            await self._say(address, kind, deliveries)

    def _decide(self) -> AckType:
        dice = self.cluster.random.randrange(100)
        if self.is_diligent or dice >= REJECTED + RELEASED:
            return AckType.ACCEPT
        return AckType.REJECT if dice < REJECTED else AckType.RELEASE

    async def _take(self, address: tuple[str, int]) -> list[Delivery]:
        topic_id = self.cluster.topic_ids[self._topic]
        topics = [SharedTopic(topic_id, [SharedPartition(PARTITION)])] if self._epoch == 0 else []
        request = ShareFetchRequest(
            GROUP, self.name, self._epoch, WAIT_MS, 1, BYTES_MAX, RECORDS_MAX, RECORDS_MAX, topics=topics
        )
        asked = self._book.clock()
        response = await self.cluster.call(address, request)
        if response.error_code:
            raise Failed(ErrorCode(response.error_code).name)
        self._epoch += 1
        taken = []
        for row in (row for topic in response.responses for row in topic.partitions):
            if row.error_code:
                raise Failed(ErrorCode(row.error_code).name)
            records = {record.offset: record for record in _records(row.records)}
            for one in row.acquired_records:
                for offset in range(one.first_offset, one.last_offset + 1):
                    due_ms = due_ms_of(records[offset])
                    due_s = due_ms / 1000 - self._wall_start_s if due_ms is not None else None
                    taken.append(self._book.delivered(self.name, offset, one.delivery_count, asked, due_s, address[0]))
        return taken

    async def _say(self, address: tuple[str, int], kind: AckType, deliveries: list[Delivery]) -> None:
        offsets = sorted(delivery.offset for delivery in deliveries)
        batches = [acknowledging.AcknowledgementBatch(offset, offset, [kind]) for offset in offsets]
        topic_id = self.cluster.topic_ids[self._topic]
        topic = acknowledging.AcknowledgeTopic(topic_id, [acknowledging.AcknowledgePartition(PARTITION, batches)])
        request = acknowledging.ShareAcknowledgeRequest(GROUP, self.name, self._epoch, topics=[topic])
        sayings = [self._book.say(delivery, kind) for delivery in deliveries]
        try:
            response = await self.cluster.call(address, request)
        except BaseException:
            self._book.answered(sayings, Status.UNKNOWN)
            raise
        code = response.error_code or response.responses[0].partitions[0].error_code
        status = Status.OK if not code else Status.FAIL if code in REFUSED else Status.UNKNOWN
        self._book.answered(sayings, status)
        if response.error_code:
            raise Failed(ErrorCode(response.error_code).name)
        self._epoch += 1


class Taker(Worker):
    """A worker that takes one record at a time through a gateway, whose member all such workers are.

    It reports what becomes of the record to the leader of that moment, naming the delivery.
    """

    async def _work(self) -> None:
        taken = await self._take_one()
        if taken is None:
            return
        delivery, incarnation = taken
        await asyncio.sleep(self.cluster.random.uniform(0.0, 0.1 if self.is_diligent else LOCK_S))
        await self._settle(delivery, self._decide(), incarnation)

    async def _leader(self) -> tuple[str, int]:
        address = self.cluster.leader_address(self._topic, PARTITION)
        if address is None:
            raise Failed("no leader is known", maybe_done=False)
        return address

    async def _take_one(self) -> tuple[Delivery, int] | None:
        address = await self._leader()
        topic_id = self.cluster.topic_ids[self._topic]
        asked = self._book.clock()
        request = TakeShareRecordsRequest(GROUP, GATEWAY, topic_id, [PARTITION], 1, BYTES_MAX, WAIT_MS)
        response = await self.cluster.call(address, request)
        row = response.partitions[0] if response.partitions else None
        code = response.error_code or (row.error_code if row is not None else 0)
        if code:
            raise Failed(ErrorCode(code).name)
        if row is None or not row.acquired_records:
            return None
        one = row.acquired_records[0]
        record = next(record for record in _records(row.records) if record.offset == one.first_offset)
        due_ms = due_ms_of(record)
        due_s = due_ms / 1000 - self._wall_start_s if due_ms is not None else None
        delivered = self._book.delivered(self.name, record.offset, one.delivery_count, asked, due_s, address[0])
        return delivered, row.incarnation

    async def _settle(self, delivery: Delivery, kind: AckType, incarnation: int) -> None:
        await self.cluster.refresh([self._topic])
        address = await self._leader()
        topic_id = self.cluster.topic_ids[self._topic]
        request = SettleShareRecordRequest(
            GROUP, GATEWAY, topic_id, PARTITION, delivery.offset, delivery.delivery_count, kind, incarnation
        )
        saying = self._book.say(delivery, kind)
        saying.told = address[0]
        try:
            response = await self.cluster.call(address, request)
        except BaseException:
            self._book.answered([saying], Status.UNKNOWN)
            raise
        code = response.error_code
        self._book.answered([saying], Status.OK if not code else Status.FAIL if code in REFUSED else Status.UNKNOWN)
        if code:
            raise Failed(ErrorCode(code).name)


class Bench:
    """A place for workers, who vanish without a word; others with other names take it."""

    def __init__(self, name: str, make: Any, lifetime_s: float) -> None:
        self.name = name
        self._make = make
        self._lifetime_s = lifetime_s
        self._is_settled = False
        self._worker: Worker | None = None

    async def run(self) -> None:
        """Have workers, one after the other."""
        count = 0
        while True:
            count += 1
            worker = self._worker = self._make(f"{self.name}.{count}")
            worker.is_diligent = self._is_settled
            task = asyncio.get_running_loop().create_task(worker.run())
            await asyncio.sleep(worker.cluster.random.expovariate(1 / self._lifetime_s))
            while self._is_settled:  # noqa: ASYNC110
                await asyncio.sleep(1.0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            worker.cluster.close()

    def settle(self) -> None:
        """The present worker stays, and does what it should."""
        self._is_settled = True
        if self._worker is not None:
            self._worker.is_diligent = True


class Office:
    """Sets up the group, and reads what became of its records."""

    def __init__(self, cluster: Cluster, topic: str, book: JobBook) -> None:
        self._cluster = cluster
        self._topic = topic
        self._book = book

    async def open(self, settings: dict[str, str]) -> None:
        """Give the group its settings and its state; the topics exist."""
        rows = [AlterableConfig(name, 0, value) for name, value in settings.items()]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_RESOURCE, GROUP, rows)])
        while not await self._is_done(request):  # noqa: ASYNC110
            await asyncio.sleep(BACKOFF_S)
        while not await self._begin():  # noqa: ASYNC110
            await asyncio.sleep(BACKOFF_S)

    async def _is_done(self, request: IncrementalAlterConfigsRequest) -> bool:
        with contextlib.suppress(Failed):
            response = await self._cluster.call(self._cluster.some_address(), request)
            return not response.responses[0].error_code
        return False

    async def _begin(self) -> bool:
        if self._topic not in self._cluster.topic_ids and not await self._cluster.refresh([self._topic]):
            return False
        topic_id = self._cluster.topic_ids[self._topic]
        key = ShareKey(GROUP, topic_id, PARTITION).coordinator_key
        state = beginning.InitializeStateData(topic_id, [beginning.PartitionData(PARTITION, 0, 0)])
        with contextlib.suppress(Failed):
            asked = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])
            found = (await self._cluster.call(self._cluster.some_address(), asked, version=6)).coordinators[0]
            if not found.error_code:
                request = beginning.InitializeShareGroupStateRequest(GROUP, [state])
                response = await self._cluster.call((found.host, found.port), request)
                return not response.results[0].partitions[0].error_code
        return False

    async def read_letters(self) -> None:
        """Read all dead letters; no more are written."""
        for partition in range(LETTER_PARTITIONS):
            offset = 0
            while True:
                records = await self._fetch(partition, offset)
                if records is None:
                    await asyncio.sleep(BACKOFF_S)
                    await self._cluster.refresh([LETTERS])
                    continue
                if not records:
                    break
                for record in records:
                    account = read_account(record.headers)
                    assert account is not None
                    self._book.letters.append(Letter(account.offset, (record.value or b"").decode()))
                offset = records[-1].offset + 1

    async def _fetch(self, partition: int, offset: int) -> list[Record] | None:
        address = self._cluster.leader_address(LETTERS, partition)
        if address is None:
            return None
        epoch = self._cluster.leaders[LETTERS, partition][1]
        wanted = FetchPartition(partition, epoch, offset, partition_max_bytes=BYTES_MAX)
        request = FetchRequest(max_wait_ms=1, max_bytes=BYTES_MAX, topics=[FetchTopic(LETTERS, partitions=[wanted])])
        with contextlib.suppress(Failed):
            row = (await self._cluster.call(address, request)).responses[0].partitions[0]
            if not row.error_code:
                return _records(row.records)
        return None


def _records(data: Any) -> list[Record]:
    buffer = bytes(data or b"")
    return [
        record for start, _ in split_batches(buffer, BYTES_MAX) for record in read_records(buffer, BYTES_MAX, start)
    ]
