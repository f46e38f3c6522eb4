"""Exactly-once writes: how a task detects that its part of a micro-batch was already written.

Every task of a query writes in a transaction of its own transactional id, which consists of the query and the task's
number. The last record in each transaction is a marker in a compacted topic: (query, task) -> batch. It becomes visible
if and only if the rows do. When Spark repeats a batch, because the driver or an executor died before the batch was
recorded as done, each task first aborts a transaction that its predecessor left open (`init_transactions` does that,
and fences it), then reads its marker: if it names this batch, the rows were written and nothing is written again.

Markers are read past open transactions of other tasks. A read_committed consumer would have to wait for those, so raw
batches are read, and a marker counts once its producer's commit follows it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.client.cluster import ClusterClient
from penstock.client.operations.offsets import EARLIEST, LATEST
from penstock.model.ids import TopicPartition
from penstock.spark.fetching import BATCH_BYTES_MAX, OffsetRange, RangeFetcher
from penstock.wire.primitives import Buffer
from penstock.wire.records import HEADER_SIZE, ControlType, control_type, read_header, read_records

TOPIC = "penstock-sink-markers"
PARTITIONS = 12
SETTINGS = {"cleanup.policy": "compact", "segment.ms": "3600000"}
PATIENCE_SECONDS = 60.0


class Marker(NamedTuple):
    """The last batch of a query that a task has written."""

    query: str
    batch: int

    def encode(self) -> bytes:
        return json.dumps({"query": self.query, "batch": self.batch}).encode()


def decode_marker(value: bytes) -> Marker:
    """Decode a marker record; raises ValueError for anything else."""
    fields = json.loads(value)
    return Marker(str(fields["query"]), int(fields["batch"]))


class Transactions(Protocol):
    """The part of a transactional producer that is used here."""

    def init_transactions(self, timeout: float = ...) -> None: ...
    def begin_transaction(self) -> None: ...
    def commit_transaction(self, timeout: float = ...) -> None: ...
    def abort_transaction(self, timeout: float = ...) -> None: ...


def write_once(
    producer: Transactions,
    last_marker: Callable[[], Marker | None],
    wanted: Marker,
    write: Callable[[], None],
) -> bool:
    """Run `write`, which sends the rows and the marker, in a transaction, unless that was done before.

    Returns whether it wrote. `last_marker` is called once no predecessor can change the marker. A batch older than the
    marker's is skipped too: a newer task has overtaken the caller. A marker of another query does not count, so a query
    that starts over with a new checkpoint writes again.
    """
    producer.init_transactions(PATIENCE_SECONDS)
    found = last_marker()
    if found is not None and found.query == wanted.query and found.batch >= wanted.batch:
        return False
    producer.begin_transaction()
    try:
        write()
        producer.commit_transaction(PATIENCE_SECONDS)
    except BaseException as problem:
        try:
            producer.abort_transaction(PATIENCE_SECONDS)
        except Exception as another:  # noqa: BLE001
            # The next user of this transactional id aborts it; the first error is the one that matters.
            problem.add_note(f"The transaction could not be aborted either: {another}")
        raise
    return True


def partition_of(key: str, partitions: int) -> int:
    """The partition of a task's markers; the same in every process."""
    return zlib.crc32(key.encode()) % partitions


class MarkerLog:
    """The markers of one partition, read to the end of the log and cached between calls."""

    def __init__(self, client: ClusterClient, partition: TopicPartition) -> None:
        self._client = client
        self._partition = partition
        self._next_offset = -1
        self._markers: dict[bytes, Marker] = {}
        self._pending: dict[int, dict[bytes, Marker]] = {}

    def last(self, key: str) -> Marker | None:
        """A task's last committed marker."""
        if self._next_offset < 0:
            self._next_offset = self._client.offsets({self._partition: EARLIEST})[self._partition]
        end = self._client.offsets({self._partition: LATEST})[self._partition]
        wanted = OffsetRange(self._partition.topic, self._partition.partition, self._next_offset, end)
        # Compaction may overtake a slow reader; a task's newest marker is never lost by that.
        fetcher = RangeFetcher(
            self._client,
            wanted,
            read_committed=False,
            headers=False,
            fail_on_data_loss=False,
            patience_seconds=PATIENCE_SECONDS,
        )
        for fetched in fetcher.batches():
            self.apply(fetched.records)
        self._next_offset = max(self._next_offset, end)
        return self._markers.get(key.encode())

    def apply(self, records: Buffer) -> None:
        """Apply batches: markers are pending until their transaction ends."""
        position = 0
        while len(records) - position >= HEADER_SIZE:
            header = read_header(records, position)
            if header.size_bytes > len(records) - position:
                break
            if header.last_offset >= self._next_offset:
                entries = read_records(records, BATCH_BYTES_MAX, position)
                if header.is_control:
                    ended = self._pending.pop(header.producer_id, {})
                    if entries and control_type(entries[0].key) is ControlType.COMMIT:
                        self._markers.update(ended)
                else:
                    found = {each.key: decode_marker(each.value) for each in entries if each.key and each.value}
                    waiting = self._pending.setdefault(header.producer_id, {})
                    (waiting if header.is_transactional else self._markers).update(found)
                self._next_offset = header.next_offset
            position += header.size_bytes
