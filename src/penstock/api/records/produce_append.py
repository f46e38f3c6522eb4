"""Appends the batches of one produce request, in as many steps as they need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices
from penstock.api.records.coordinated_topics import check_append
from penstock.api.records.produce_checks import ATTRIBUTES_AT, TOPIC_IDS_SINCE, TRANSACTIONAL
from penstock.api.records.produce_response import (
    Answers,
    Waiting,
    close_if_refused,
    refused_row,
    respond,
    respond_later,
)
from penstock.core.metadata.links import LinkState
from penstock.core.metadata.topic_names import COORDINATED_TOPICS
from penstock.core.replica.postponed import TRANSIENT_ERRORS, RequestedPartition
from penstock.core.replica.producer_state import NOT_REQUIRED
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.admission import ADMITTED, Admission
from penstock.runtime.replication.batch_preparation import INLINE_BYTES_MAX, Deferred, PreparedBatch
from penstock.runtime.replication.mirroring import check_own_producer
from penstock.runtime.replication.partition import CLIENT, Appended, Partition
from penstock.storage.producers.recall import Unsearched
from penstock.wire.compression import Compression
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.record_types import BatchError
from penstock.wire.records import HEADER_SIZE, BatchHeader, read_header

ALL = -1
LEADER = 1
NONE = 0
ZSTD_SINCE = 7
CODEC = 0x07
# After so many partitions of a request other clients get their turns.
ROWS_AT_ONCE_MAX = 500

Response = ProduceResponse | asyncio.Future[ProduceResponse] | None


class ProduceAppend:
    """One request: what of it is appended, and the answers so far."""

    __slots__ = (
        "_answers",
        "_has_refused",
        "_left",
        "_prepare",
        "_waiting",
        "admission",
        "context",
        "request",
        "services",
    )

    def __init__(self, services: BrokerServices, request: ProduceRequest, context: RequestContext) -> None:
        self.services = services
        self.request = request
        self.context = context
        self.admission: Admission = ADMITTED
        # From the next batch on. Of the first of these topics there may be answers already.
        self._left: Sequence[TopicProduceData] = request.topic_data
        self._answers: Answers = []
        self._waiting: list[Waiting] = []
        self._has_refused = False
        # Prepares the next batch, if it is too large to be prepared here.
        self._prepare: Callable[[], PreparedBatch] | None = None

    def proceed(self, prepared: PreparedBatch | ApiError | None = None) -> bool:
        """Append batches, the first of them as it was `prepared`; False if `prepare_next` must run before others."""
        now_ms = self.services.env.now_ms()
        self.services.produce_work.budget.left = INLINE_BYTES_MAX
        is_begun = bool(self._answers)
        rows_left = ROWS_AT_ONCE_MAX
        for number, topic in enumerate(self._left):
            rows: list[PartitionProduceResponse] = []
            if is_begun and number == 0:
                rows = self._answers[-1][1]
            else:
                self._answers.append((topic, rows))
            before = len(rows)
            for data in topic.partition_data:
                rows_left -= 1
                if rows_left < 0:
                    self._stop_at(number, len(rows) - before, None)
                    return False
                try:
                    row = self._append(topic, data, now_ms, prepared, len(rows))
                except Deferred as deferred:
                    self._stop_at(number, len(rows) - before, deferred.prepare)
                    return False
                except Unsearched as unsearched:
                    self._recall_later(topic, data, unsearched, rows)
                    row = PartitionProduceResponse(data.index)
                except ApiError as error:
                    row = self._refuse(topic, data, error)
                prepared = None
                rows.append(row)
        return True

    async def prepare_next(self) -> PreparedBatch | ApiError | None:
        """The next batch, prepared by a worker, if it needs one; other clients get their turns meanwhile."""
        if self._prepare is None:
            await asyncio.sleep(0)
            return None
        size_bytes = len(self._left[0].partition_data[0].records or b"")
        try:
            return await self.services.produce_work.fair.run(self.context.client.principal, self._prepare, size_bytes)
        except ApiError as error:
            return error.with_traceback(None)

    def response(self) -> Response:
        """The response once all batches are appended, or a future that waits for replicas and disks."""
        services, request = self.services, self.request
        throttle_ms = self._throttle() if services.backpressure.watched else 0
        if request.acks == NONE:
            close_if_refused(self._answers)
            return None
        if self._waiting:
            return respond_later(
                self._answers,
                self._waiting,
                request.timeout_ms,
                lambda: respond(services, self._answers, self.context, throttle_ms, may_have_failed=True),
            )
        return respond(services, self._answers, self.context, throttle_ms, may_have_failed=self._has_refused)

    def _stop_at(self, number: int, rows: int, prepare: Callable[[], PreparedBatch] | None) -> None:
        """Leave the rest for later, from these many rows of a topic on."""
        topic = self._left[number]
        rest = topic._replace(partition_data=topic.partition_data[rows:])
        self._left = (rest, *self._left[number + 1 :])
        self._prepare = prepare

    def _append(
        self,
        topic: TopicProduceData,
        data: PartitionProduceData,
        now_ms: int,
        prepared: PreparedBatch | ApiError | None,
        row: int,
    ) -> PartitionProduceResponse:
        """Append one batch, whose answer is this row of its topic."""
        if prepared is not None and isinstance(prepared, ApiError):
            raise prepared
        if self.admission.refusals:
            reason = self.admission.refusals.get((topic.name, topic.topic_id, data.index))
            if reason is not None:
                raise reason
        acks = self.request.acks
        if acks not in (ALL, LEADER, NONE):
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {acks}")
        partition = self._find(topic, data)
        self.admission.check_topic(topic.name, partition)
        if partition.name.topic in COORDINATED_TOPICS:
            check_append(partition.name.topic, self.context, self.services.access)
        if acks != ALL:
            _check_acks(partition, acks)
        appended = self._append_batch(partition, topic, data, now_ms, prepared)
        if acks == ALL:
            committed = self._committed(partition, appended)
            if not committed.done() or committed.exception() is not None:
                self._waiting.append((committed, len(self._answers) - 1, row))
        if partition.log.is_flush_due:
            durable = partition.sync.durable(appended.next_offset)
            if not durable.done():
                self._waiting.append((durable, len(self._answers) - 1, row))
        return PartitionProduceResponse(
            data.index, 0, appended.base_offset, appended.log_append_time_ms, partition.log.start_offset
        )

    def _find(self, topic: TopicProduceData, data: PartitionProduceData) -> Partition:
        by_id = self.context.api_version >= TOPIC_IDS_SINCE
        return self.services.partitions.lookup(topic.name, topic.topic_id, data.index, by_id=by_id)

    def _committed(self, partition: Partition, appended: Appended) -> asyncio.Future[None]:
        return partition.committed(appended.next_offset, sync=self.services.settings.node.penstock_sync_on_ack)

    def _append_batch(
        self,
        partition: Partition,
        topic: TopicProduceData,
        data: PartitionProduceData,
        now_ms: int,
        prepared: PreparedBatch | None,
    ) -> Appended:
        records = data.records
        if not records:
            raise ApiError(ErrorCode.INVALID_RECORD, "the request has no records for this partition")
        assert isinstance(records, memoryview)
        services = self.services
        work = services.produce_work
        links = services.partitions.image.links
        if links.mirrors:
            check_mirror(links, partition, records)
        try:
            if work.postponed:
                # First: it forgets a batch that is stored by now, which would hide one that is refused below.
                self._check_turn(partition, (topic.name, topic.topic_id, data.index), records)
            services.partitions.home(partition).check_writable()
            if self.request.acks == ALL:
                partition.check_enough_replicas()
        except ApiError as error:
            # What is stored already needs neither room nor replicas, and comes from a client that missed the answer.
            try:
                stored = partition.stored(records)
            except Unsearched as unsearched:
                raise Unsearched(unsearched.header, error) from None
            if stored is None:
                raise
            return stored
        attributes = records[ATTRIBUTES_AT] if len(records) > ATTRIBUTES_AT else 0
        if self.context.api_version < ZSTD_SINCE and attributes & CODEC == Compression.ZSTD:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
        if services.tenants.meters:
            services.tenants.check_room(partition.name.topic, len(records))
        if attributes & TRANSACTIONAL:
            verification = self.admission.verification((topic.name, topic.topic_id, data.index))
            return partition.append(records, now_ms, CLIENT, verification, work.budget, prepared)
        return partition.append(records, now_ms, CLIENT, NOT_REQUIRED, work.budget, prepared)

    def _check_turn(self, partition: Partition, place: RequestedPartition, records: memoryview) -> None:
        """Refuse a batch while an earlier one of its producer, which was refused for now, has not come again."""
        if len(records) < HEADER_SIZE:
            return
        now_ms = self.services.env.monotonic_ms()
        postponed = self.services.produce_work.postponed
        refusal = postponed.refusal(place, read_header(records), partition.log.producers, now_ms)
        if refusal is not None:
            raise refusal

    def _refuse(self, topic: TopicProduceData, data: PartitionProduceData, error: ApiError) -> PartitionProduceResponse:
        # Frames that have the error in a variable would keep the request until cycles are collected.
        error.__traceback__ = None
        self._has_refused = True
        records = data.records
        if error.code in TRANSIENT_ERRORS and records and len(records) >= HEADER_SIZE:
            with suppress(BatchError):
                self._postpone((topic.name, topic.topic_id, data.index), read_header(records), error)
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            error = self._confirmed(self._find(topic, data), error)
        return refused_row(data.index, error)

    def _recall_later(
        self,
        topic: TopicProduceData,
        data: PartitionProduceData,
        unsearched: Unsearched,
        rows: list[PartitionProduceResponse],
    ) -> None:
        """Answer for a batch that may be a repeated one, when that is known and the first copy is committed."""
        partition = self._find(topic, data)
        place = topic.name, topic.topic_id, data.index
        recalled = self.services.env.spawn(
            self._recall(partition, place, unsearched, rows, len(rows)),
            f"look for a repeated batch in {partition.name}",
        )
        self._waiting.append((recalled, len(self._answers) - 1, len(rows)))

    async def _recall(
        self,
        partition: Partition,
        place: RequestedPartition,
        unsearched: Unsearched,
        rows: list[PartitionProduceResponse],
        row: int,
    ) -> None:
        index = rows[row].index
        try:
            appended = await partition.recall(unsearched)
            if self.request.acks == ALL:
                await self._committed(partition, appended)
        except ApiError as error:
            error.__traceback__ = None
            if error.code in TRANSIENT_ERRORS:
                self._postpone(place, unsearched.header, error)
            is_gap = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            rows[row] = refused_row(index, self._confirmed(partition, error) if is_gap else error)
            return
        start_offset = partition.log.start_offset
        rows[row] = PartitionProduceResponse(index, 0, appended.base_offset, appended.log_append_time_ms, start_offset)

    def _postpone(self, place: RequestedPartition, header: BatchHeader, error: ApiError) -> None:
        self.services.produce_work.postponed.note(place, header, error, self.services.env.monotonic_ms())

    def _confirmed(self, partition: Partition, error: ApiError) -> ApiError:
        """Producers give up on an unexpected sequence: a leader that may have been replaced has them retry.

        Its followers are not asked: librdkafka, which sends several batches at once, may hang if the answers to those
        behind a refused one come later than that one's.
        """
        leadership = self.services.partitions.leadership
        if leadership is None or leadership.is_sure(partition):
            return error
        text = f"this broker may no longer lead {partition.name}: {error.message}"
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    def _throttle(self) -> int:
        """Hold the producer back for groups that cannot keep up; later requests wait, this one is served (KIP-219)."""
        names = []
        for topic in self.request.topic_data:
            name = topic.name
            if self.context.api_version >= TOPIC_IDS_SINCE:
                known = self.services.partitions.image.topics_by_id.get(topic.topic_id)
                name = "" if known is None else known.name
            names += [(name, data.index) for data in topic.partition_data]
        throttle_ms = self.services.backpressure.throttle_ms(names)
        mute = self.context.client.mute
        if throttle_ms and mute is not None:
            mute(throttle_ms)
        return throttle_ms


def check_mirror(links: LinkState, partition: Partition, records: memoryview) -> None:
    """Raises ApiError where a link still writes, or where what it wrote could be mistaken for this producer's."""
    mirror = links.mirrors.get(partition.topic_id)
    if mirror is None:
        return
    links.check_writable(partition.topic_id, partition.name, partition.leader_epoch)
    stopped_epoch = links.stopped_epoch(partition.topic_id, partition.name.partition)
    if stopped_epoch is not None and len(records) >= HEADER_SIZE:
        check_own_producer(partition, read_header(records).producer_id, mirror.kept_producer_id, stopped_epoch)


def _check_acks(partition: Partition, acks: int) -> None:
    required = partition.settings.penstock_acks_min
    if required == "all" or (required == "1" and acks == NONE):
        topic = partition.name.topic
        raise ApiError(
            ErrorCode.INVALID_REQUIRED_ACKS,
            f"topic {topic} requires acks={required} (penstock.acks.min), and the producer sent acks={acks}: "
            f"set acks={required} in the producer",
        )
