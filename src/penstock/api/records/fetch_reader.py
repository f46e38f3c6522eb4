"""Reads the partitions of one consumer's fetch: from the log, or where a nearer replica is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import suppress

from penstock.api.access import refusal
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices
from penstock.core.metrics.counters import FETCH_BY_CONSUMERS
from penstock.core.replica.fencing import check_leader_epoch
from penstock.core.replica.fetch_session import Wanted
from penstock.core.replica.replica_selector import choose_replica
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.replication.absence import note_read_failure
from penstock.runtime.replication.fetch_rows import TOPIC_IDS_SINCE, FetchedPartition, FetchKey, is_follower
from penstock.runtime.replication.partition import Partition
from penstock.wire.messages.fetch import AbortedTransaction, FetchRequest, PartitionData
from penstock.wire.records import HEADER_SIZE, LENGTH_OVERHEAD, read_header

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS_SINCE = 11
READ_COMMITTED = 1
ABORTED_AT_ONCE = 50
# The position of a batch's length.
LENGTH_AT = 8
READ, TOPIC = Operation.READ, ResourceType.TOPIC
NONE_UNREADABLE: frozenset[tuple[str, Uuid]] = frozenset()


class FetchReader:
    """The partitions that a consumer requests, as often as its fetch looks at them."""

    __slots__ = ("_access", "_context", "_partitions", "_rack", "_request", "bytes_max", "committed_only", "on_error")

    def __init__(self, services: BrokerServices, request: FetchRequest, context: RequestContext) -> None:
        node = services.settings.node
        self._access = services.access
        self._partitions = services.partitions
        self._request = request
        self._context = context
        self._rack = request.rack_id if node.replica_selector_class == RACK_AWARE_SELECTOR else ""
        self.bytes_max = min(request.max_bytes, node.fetch_max_bytes)
        self.committed_only = request.isolation_level == READ_COMMITTED
        # Counts an error that the consumer gets.
        self.on_error: Callable[[int], None] = services.counters.api(FETCH_BY_CONSUMERS).failed

    def read(self, wanted: Iterable[tuple[FetchKey, Wanted]], size_bytes: int = 0) -> list[FetchedPartition]:
        """A row for each partition: its records, its error, or the replica that is nearer to the consumer.

        `size_bytes` is that of the rows before these.
        """
        room = self.bytes_max - size_bytes
        unreadable = self._unreadable(wanted) if self._access.is_on else NONE_UNREADABLE
        found = []
        is_first = not size_bytes
        for key, one in wanted:
            try:
                if unreadable and (key.topic, key.topic_id) in unreadable:
                    raise refusal(self._context, READ, TOPIC, key.topic)
                partition = self.find(key)
                row = self._nearer(partition, key, one) if self._rack else None
                if row is None:
                    row = self._read(partition, key, one, room, is_first=is_first)
            except ApiError as error:
                self.on_error(error.code)
                found.append(FetchedPartition(key, PartitionData(key.partition, error.code, -1, records=b""), 0))
                continue
            if row.size_bytes:
                room -= row.size_bytes
                is_first = False
            found.append(row)
        return found

    def find(self, key: FetchKey) -> Partition:
        """The partition, if this broker may serve the consumer; raises ApiError."""
        by_id = self._context.api_version >= TOPIC_IDS_SINCE
        if self._context.api_version >= RACKS_SINCE:
            return self._partitions.replica(key.topic, key.topic_id, key.partition, by_id=by_id)
        return self._partitions.lookup(key.topic, key.topic_id, key.partition, by_id=by_id)

    def uncount(self, found: Iterable[FetchedPartition]) -> None:
        """What was read is not sent now, and is counted when it is."""
        for row in found:
            if row.size_bytes:
                with suppress(ApiError):
                    self.find(row.key).counters.read(-row.size_bytes)

    def partitions(self, wanted: Iterable[tuple[FetchKey, Wanted]]) -> Iterator[Partition]:
        """Those of the partitions that this broker serves."""
        for key, _ in wanted:
            try:
                yield self.find(key)
            except ApiError:
                continue

    def _unreadable(self, wanted: Iterable[tuple[FetchKey, Wanted]]) -> Set[tuple[str, Uuid]]:
        """The topics that the client may not read, as it names them. Rights are checked for every fetch."""
        named = {(key.topic, key.topic_id) for key, _ in wanted}
        if is_follower(self._request):
            return named
        if self._context.api_version < TOPIC_IDS_SINCE:
            names = {topic: topic[0] for topic in named}
        else:
            topics = self._partitions.image.topics_by_id
            names = {topic: topics[topic[1]].name for topic in named if topic[1] in topics}
        client = self._context.client
        return {topic for topic, name in names.items() if not self._access.allows(client, READ, TOPIC, name)}

    def _nearer(self, partition: Partition, key: FetchKey, wanted: Wanted) -> FetchedPartition | None:
        """The row that directs a consumer to a replica in its rack; None when it is served here."""
        leading = partition.leading
        if leading is None or not leading.has_followers:
            return None
        brokers = self._partitions.image.brokers
        racks = {replica: brokers[replica].registration.rack for replica in partition.replicas if replica in brokers}
        chosen = choose_replica(leading, racks, self._rack, wanted.offset)
        if chosen is None or brokers[chosen].fenced:
            return None
        data = PartitionData(
            key.partition,
            0,
            leading.high_watermark,
            partition.last_stable_offset,
            partition.log.start_offset,
            preferred_read_replica=chosen,
            records=b"",
        )
        return FetchedPartition(key, data, 0)

    def _read(
        self, partition: Partition, key: FetchKey, wanted: Wanted, room: int, *, is_first: bool
    ) -> FetchedPartition:
        check_leader_epoch(wanted.leader_epoch, partition.state.leader_epoch)
        directory = self._partitions.home(partition)
        if directory.failure is not None:
            directory.check_writable()
        log = partition.log
        error = 0
        is_moved = False
        data = b""
        try:
            size_max = min(wanted.bytes_max, room)
            if size_max > 0 or is_first:
                data = partition.read(
                    wanted.offset,
                    max(0, size_max),
                    committed_only=self.committed_only,
                    minimum_one_batch=is_first,
                ).read()
            partition.counters.read(len(data))
        except ApiError as problem:
            is_moved = problem.code is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
            if not is_moved:
                # The client needs the log's bounds to find out where to continue.
                error = note_read_failure(partition, problem)
                self.on_error(error)
        return FetchedPartition(
            key,
            PartitionData(
                key.partition,
                error,
                partition.state.high_watermark,
                partition.last_stable_offset,
                log.start_offset,
                aborted_transactions=_aborted(partition, wanted.offset, data) if self.committed_only else None,
                records=data,
            ),
            len(data),
            is_moved,
        )


def _aborted(partition: Partition, offset: int, data: bytes) -> list[AbortedTransaction]:
    """The aborted transactions with records in the data that was read, perhaps some more."""
    aborted = partition.log.aborted
    if not data or not len(aborted):
        return []
    # Finding the end of the data is only worthwhile if that saves something.
    few = len(aborted) <= ABORTED_AT_ONCE
    upper_bound = partition.last_stable_offset if few else _end_of(data)
    return [AbortedTransaction(one.producer_id, one.first_offset) for one in aborted.overlapping(offset, upper_bound)]


def _end_of(data: bytes) -> int:
    """The offset after the last of some whole batches."""
    position = last = 0
    while position + HEADER_SIZE <= len(data):
        last = position
        position += LENGTH_OVERHEAD + int.from_bytes(data[position + LENGTH_AT : position + LENGTH_OVERHEAD], "big")
    return read_header(data, last).next_offset
