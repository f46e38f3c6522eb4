"""Reads a range of one partition as Arrow batches, prefetching one fetch ahead."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from penstock.client.cluster import ClusterClient
from penstock.client.connection import Connection
from penstock.client.failures import NoAnswer
from penstock.client.operations.routing import PAUSE_FIRST_S, PAUSE_MAX_S, RETRIABLE, TryAgain
from penstock.model.errors import ApiError, ErrorCode, error_code, error_name
from penstock.model.ids import TopicPartition
from penstock.wire.columns import read_columns
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.primitives import Buffer
from penstock.wire.record_types import Columns
from penstock.wire.records import HEADER_SIZE, ControlType, TimestampType, control_type, read_header, read_records

# Small enough that the memory is reused while it is still in the CPU caches: larger fetches cost more system time.
FETCH_BYTES = 2 * 1024 * 1024
FETCH_WAIT_MS = 500
# The most that one batch may decompress to; Arrow's offsets within a column are 31-bit.
BATCH_BYTES_MAX = 1024 * 1024 * 1024
# Batches are converted together up to this many records or compressed bytes, so that the result stays in the caches.
RUN_RECORDS_MAX = 20_000
RUN_BYTES_MAX = 2 * 1024 * 1024
# Freed blocks below this size stay with the process; glibc's limit for that is 32 MB.
MEMORY_KEPT_BYTES = 30 * 1024 * 1024


class DataLost(Exception):
    """Records of the range are gone: expired or deleted, or the topic was recreated."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records with start <= offset < end of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Fetched(NamedTuple):
    """One fetch response: whole batches, the requested and the next offset, and the aborted transactions.

    The first batch may start before the requested offset, with records that were read before or deleted.
    """

    records: Buffer
    offset: int
    next_offset: int
    aborted: Sequence[Any]


class Run(NamedTuple):
    """Consecutive batches with the same timestamp type."""

    start: int
    end: int
    timestamp_type: TimestampType


class RangeFetcher:
    """Fetches one range from the partition's current leader.

    Without `fail_on_data_loss` missing records are skipped; with it they raise `DataLost`. Raises TimeoutError if
    nothing arrives for `patience_seconds`.
    """

    def __init__(
        self,
        client: ClusterClient,
        wanted: OffsetRange,
        *,
        read_committed: bool,
        headers: bool,
        fail_on_data_loss: bool,
        patience_seconds: float,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        self._client = client
        self._range = wanted
        self._read_committed = read_committed
        self._headers = headers
        self._fail_on_data_loss = fail_on_data_loss
        self._patience_seconds = patience_seconds
        self._fetch_bytes = fetch_bytes
        self._in_flight: Connection | None = None

    def columns(self) -> Iterator[tuple[Columns, TimestampType]]:
        """The range's records in order, in pieces of about one fetch; pieces without records are left out."""
        for fetched in self.batches():
            skipped = aborted_batches(fetched.records, fetched.aborted) if fetched.aborted else frozenset()
            for run in runs(fetched.records):
                columns, _ = read_columns(
                    memoryview(fetched.records)[run.start : run.end],
                    fetched.offset,
                    self._range.end,
                    size_max=BATCH_BYTES_MAX,
                    headers=self._headers,
                    skip=lambda header, skipped=skipped: header.base_offset in skipped,  # type: ignore[misc]
                )
                if columns.records_count:
                    yield columns, run.timestamp_type

    def batches(self) -> Iterator[Fetched]:
        """The range's batches as they arrive. The first may start before the range, the last may reach past it."""
        position = self._range.start
        end = self._range.end
        try:
            while position < end:
                fetched = self._fetch(position)
                position = min(fetched.next_offset, end)
                if position < end:
                    self._send(position)
                yield fetched
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """Disconnect if a response is pending: it must not be mistaken for the next request's."""
        if self._in_flight is not None:
            self._in_flight = None
            self._client.forget(self._range.topic_partition)

    def _send(self, offset: int) -> None:
        """Send a request ahead. Errors are raised when the response is needed."""
        try:
            self._send_now(offset)
        except (TryAgain, NoAnswer):
            self._client.forget(self._range.topic_partition)

    def _fetch(self, offset: int) -> Fetched:
        """The next records from `offset` on: at least one batch, unless the rest of the range is empty."""
        deadline = time.monotonic() + self._patience_seconds
        pause = PAUSE_FIRST_S
        while True:
            try:
                fetched = self._answer(offset)
                if fetched.next_offset > offset:
                    return fetched
                problem: Exception = TimeoutError("the broker has no records there yet")
            except (TryAgain, NoAnswer) as error:
                self._in_flight = None
                self._client.forget(self._range.topic_partition)
                problem = error
                time.sleep(pause)
                pause = min(pause * 2, PAUSE_MAX_S)
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self._range.topic_partition} returned nothing from offset {offset} on for "
                    f"{self._patience_seconds:.0f} s: {problem}"
                ) from problem

    def _answer(self, offset: int) -> Fetched:
        connection = self._in_flight or self._send_now(offset)
        response = connection.receive()
        self._in_flight = None
        if response.error_code:
            raise TryAgain(error_name(response.error_code))
        (topic,) = response.responses
        (partition,) = topic.partitions
        if partition.error_code:
            return self._explain(partition, offset)
        records = partition.records if partition.records is not None else b""
        aborted = partition.aborted_transactions or ()
        return Fetched(records, offset, next_offset(records, offset, self._range.end), aborted)

    def _send_now(self, offset: int) -> Connection:
        connection = self._client.leader(self._range.topic_partition)
        connection.send(self._request(offset))
        self._in_flight = connection
        return connection

    def _explain(self, partition: Any, offset: int) -> Fetched:
        """Handle a partition's error: retry, skip, or fail with a reason."""
        code = partition.error_code
        where = self._range.topic_partition
        if code in RETRIABLE:
            raise TryAgain(f"{where}: {error_name(code)}")
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            first = partition.log_start_offset
            if first < 0:
                first = self._client.offsets({where: -2})[where]
            if self._fail_on_data_loss:
                raise DataLost(
                    f"{where}: offset {offset} is gone, the log now starts at {first}. Records expired, were deleted, "
                    "or the topic was recreated before they were read. Set failOnDataLoss to false to continue with "
                    "what remains, and raise retention.ms so that it does not happen again"
                )
            return Fetched(b"", offset, first if offset < first else self._range.end, ())
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self._fail_on_data_loss:
            return Fetched(b"", offset, self._range.end, ())
        raise ApiError(error_code(code), f"{where}: {error_name(code)} at offset {offset}")

    def _request(self, offset: int) -> FetchRequest:
        partition = FetchPartition(self._range.partition, fetch_offset=offset, partition_max_bytes=self._fetch_bytes)
        return FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=int(self._read_committed),
            topics=[FetchTopic(topic=self._range.topic, partitions=[partition])],
        )


@lru_cache(maxsize=1)
def keep_memory() -> None:
    """Make this process reuse the memory of one fetch for the next.

    By default glibc maps large blocks and unmaps them each time, and every page of them is zeroed anew: half of the
    cost of reading. Once a block has been freed, glibc keeps blocks up to its size.
    """
    block = bytearray(MEMORY_KEPT_BYTES)
    del block


def next_offset(records: Buffer, offset: int, end: int) -> int:
    """The next offset after these batches; `end` once they reach past it, `offset` if there is no complete batch."""
    position = 0
    while len(records) - position >= HEADER_SIZE:
        header = read_header(records, position)
        if header.base_offset >= end:
            return end
        if header.size_bytes > len(records) - position:
            break
        offset = max(offset, header.next_offset)
        position += header.size_bytes
    return offset


def runs(records: Buffer) -> Iterator[Run]:
    """The runs of batches that can be converted in one step."""
    start = position = count = 0
    current: TimestampType | None = None
    while len(records) - position >= HEADER_SIZE:
        header = read_header(records, position)
        if header.size_bytes > len(records) - position:
            break
        full = count >= RUN_RECORDS_MAX or position - start >= RUN_BYTES_MAX
        if current is not None and (full or header.timestamp_type is not current):
            yield Run(start, position, current)
            start, count = position, 0
        current = header.timestamp_type
        count += header.records_count
        position += header.size_bytes
    if current is not None:
        yield Run(start, position, current)


def aborted_batches(records: Buffer, aborted: Sequence[Any]) -> frozenset[int]:
    """The base offsets of the batches that belong to aborted transactions.

    `aborted` names producers and the start of their transactions; each ends with that producer's abort marker.
    """
    waiting = sorted(((each.first_offset, each.producer_id) for each in aborted), reverse=True)
    active: set[int] = set()
    skipped = set()
    position = 0
    while len(records) - position >= HEADER_SIZE:
        header = read_header(records, position)
        if header.size_bytes > len(records) - position:
            break
        while waiting and waiting[-1][0] <= header.last_offset:
            active.add(waiting.pop()[1])
        if header.is_control:
            first = read_records(records, BATCH_BYTES_MAX, position)[:1]
            if header.producer_id in active and first and control_type(first[0].key) is ControlType.ABORT:
                active.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in active:
            skipped.add(header.base_offset)
        position += header.size_bytes
    return frozenset(skipped)
