"""A consumer that follows the leaders of a topic's partitions, and one that shares them in a group."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.records import Record, read_records, split_batches
from sim.producer import VALUE
from sim.wire import BACKOFF_S, RETRIABLE, Cluster, Failed
from support.history import History

BYTES_MAX = 1 << 20
CONTROL = 0x20
TRANSACTIONAL = 0x10
# The type of a marker that aborts.
ABORT = 0
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
# What ListOffsets is asked for.
LATEST, EARLIEST = -1, -2
FETCH_WAIT_MS = 300
REFUSALS_MAX = 5
PAUSE_S = 0.05


def records_of(data: Any, position: int, aborted: Sequence[Any] | None = ()) -> tuple[list[tuple[int, str]], int]:
    """Offsets and values of fetched records from a position on, and the position after them.

    Records of the transactions in `aborted` are left out, as clients do it: from where one began up to its marker.
    """
    found: list[tuple[int, str]] = []
    buffer = bytes(data or b"")
    beginning = deque(sorted(aborted or (), key=lambda one: one.first_offset))
    hidden: set[int] = set()
    for start, header in split_batches(buffer, BYTES_MAX):
        while beginning and beginning[0].first_offset <= header.last_offset:
            hidden.add(beginning.popleft().producer_id)
        if header.attributes & CONTROL:
            key = next(iter(read_records(buffer, BYTES_MAX, start))).key or b""
            if int.from_bytes(key[2:4], "big") == ABORT:
                hidden.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in hidden):
            found += [
                (record.offset, _value(record).decode())
                for record in read_records(buffer, BYTES_MAX, start)
                if record.offset >= position
            ]
        position = max(position, header.next_offset)
    return found, position


def _value(record: Record) -> bytes:
    """What a record stands for in a history; one that deletes its key has it in a header."""
    return (dict(record.headers).get(VALUE) or b"") if record.value is None else bytes(record.value)


class Consumer:
    """Reads partitions of one topic from given positions on; `positions` is how far it is."""

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        history: History,
        topic: str,
        partitions: list[int],
        isolation_level: int = READ_UNCOMMITTED,
    ) -> None:
        self.name = name
        self.isolation_level = isolation_level
        # What was got, as partition, offset and value, for those who want to do something with it.
        self.fetched: list[tuple[int, int, str]] | None = None
        # Whether it reads on at the log's start where what it wants is deleted.
        self.follows_start = False
        self.topic = topic
        self.cluster = cluster
        self.history = history
        self.positions: dict[int, int] = {}
        # How often in a row a position was refused that the start of the log is not past.
        self._refusals: dict[tuple[int, int], int] = {}
        for partition in partitions:
            self.assign(partition, 0)

    def assign(self, partition: int, offset: int) -> None:
        """Read a partition from an offset on."""
        self.positions[partition] = offset
        self.history.moved(self.name, f"{self.topic}-{partition}")

    def unassign(self, partition: int) -> None:
        self.positions.pop(partition, None)

    async def run(self) -> None:
        """Read for ever."""
        while True:
            await self.poll()
            # What came meanwhile is read in one go, as applications do that have something to do.
            await asyncio.sleep(PAUSE_S)

    async def poll(self) -> None:
        """Ask every leader once."""
        by_leader: dict[tuple[str, int], list[int]] = {}
        unknown = not self.positions
        for partition in self.positions:
            address = self.cluster.leader_address(self.topic, partition)
            if address is None:
                unknown = True
            else:
                by_leader.setdefault(address, []).append(partition)
        if unknown:
            await self.cluster.refresh([self.topic])
        if not by_leader:
            await asyncio.sleep(BACKOFF_S)
            return
        settled = await asyncio.gather(*(self._fetch(address, wanted) for address, wanted in by_leader.items()))
        if not all(settled):
            await asyncio.sleep(BACKOFF_S)
            await self.cluster.refresh([self.topic])

    async def _fetch(self, address: tuple[str, int], partitions: list[int]) -> bool:
        """Fetch from one broker; False if another one may lead now."""
        # Some may have been taken away while we asked who leads.
        asked = {partition: self.positions[partition] for partition in partitions if partition in self.positions}
        if not asked:
            return True
        wanted = [
            FetchPartition(
                partition, self.cluster.leaders[self.topic, partition][1], offset, partition_max_bytes=BYTES_MAX
            )
            for partition, offset in asked.items()
        ]
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=BYTES_MAX,
            isolation_level=self.isolation_level,
            topics=[FetchTopic(topic=self.topic, partitions=wanted)],
        )
        try:
            response = await self.cluster.call(address, request)
        except Failed:
            return False
        if response.error_code:
            return False
        settled = True
        for topic in response.responses:
            for answer in topic.partitions:
                settled &= self._take(answer, asked)
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._go_to_start(answer.partition_index, asked[answer.partition_index])
        return settled

    async def _go_to_start(self, partition: int, asked: int) -> None:
        """What we want is not there: retention has deleted it, or something is wrong."""
        starts = await self.start_offsets([partition]) if self.follows_start else {partition: 0}
        if self.positions.get(partition) != asked or starts is None:
            return
        if starts[partition] > asked:
            self.assign(partition, starts[partition])
            return
        # Each replica deletes what is too old by itself: the leader of before may have deleted more than its successor,
        # from which the start is. A leader that refuses what it has refuses it again.
        refusals = self._refusals.get((partition, asked), 0) + 1
        self._refusals = {(partition, asked): refusals}
        if not self.follows_start or refusals == REFUSALS_MAX:
            name = f"{self.topic}-{partition}"
            self.history.notice(
                "fetch-refused", f"{self.name} {name} at {asked}: OFFSET_OUT_OF_RANGE, the start is {starts[partition]}"
            )

    def _take(self, answer: Any, asked: dict[int, int]) -> bool:
        partition, code = answer.partition_index, answer.error_code
        name = f"{self.topic}-{partition}"
        if self.positions.get(partition) != asked.get(partition):
            # Meanwhile we were told to read elsewhere.
            return True
        if code == ErrorCode.NONE:
            position = asked[partition]
            found, following = records_of(answer.records, position, answer.aborted_transactions)
            if found and found[-1][0] >= answer.high_watermark:
                self.history.notice(
                    "uncommitted-read",
                    f"{self.name} got offset {found[-1][0]} of {name} with a high watermark of {answer.high_watermark}",
                )
            self.history.polled(self.name, name, found)
            if self.fetched is not None:
                self.fetched += [(partition, *record) for record in found]
            self.positions[partition] = following
            return True
        if code not in RETRIABLE and code != ErrorCode.OFFSET_OUT_OF_RANGE:
            self.history.notice("fetch-refused", f"{self.name} {name} at {asked[partition]}: {ErrorCode(code).name}")
        return False

    async def stable_ends(self) -> dict[int, int] | None:
        """The high watermarks, None while any of them cannot be asked or a transaction is open before it."""
        ends = await self.end_offsets()
        return ends if ends is not None and ends == await self.end_offsets(READ_COMMITTED) else None

    async def end_offsets(self, isolation_level: int = READ_UNCOMMITTED) -> dict[int, int] | None:
        """The high watermarks (or last stable offsets) of the leaders; None while any of them cannot be asked."""
        return await self._list_offsets(LATEST, isolation_level, list(self.positions))

    async def start_offsets(self, partitions: list[int] | None = None) -> dict[int, int] | None:
        """Where the leaders' logs start; None while any of them cannot be asked."""
        wanted = list(self.positions) if partitions is None else partitions
        return await self._list_offsets(EARLIEST, READ_UNCOMMITTED, wanted)

    async def _list_offsets(self, timestamp: int, isolation_level: int, partitions: list[int]) -> dict[int, int] | None:
        found: dict[int, int] = {}
        for partition in partitions:
            address = self.cluster.leader_address(self.topic, partition)
            if address is None:
                await self.cluster.refresh([self.topic])
                return None
            wanted = ListOffsetsTopic(self.topic, [ListOffsetsPartition(partition, -1, timestamp)])
            try:
                response = await self.cluster.call(address, ListOffsetsRequest(-1, isolation_level, [wanted]))
            except Failed:
                await self.cluster.refresh([self.topic])
                return None
            answer = response.topics[0].partitions[0]
            if answer.error_code:
                await self.cluster.refresh([self.topic])
                return None
            found[partition] = answer.offset
        return found
