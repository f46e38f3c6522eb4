"""Versions 3-13. KIP-98 idempotence and transactions, KIP-467 record errors, KIP-516, KIP-890, KIP-951 leader hints.

Topics may require registered schema ids (confluent.value.schema.validation).

`acks=1` is answered when the batch is in the log, `acks=all` when every in-sync replica has it; if this broker is the
only one of them, when it is on disk. `acks=0` has no response: an error closes the connection, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from penstock.api.access import refusal
from penstock.api.context import Client, RequestContext
from penstock.api.declaration import Api
from penstock.api.records.coordinated_topics import check_append
from penstock.core.metadata.image import ResourceType as ConfigResource
from penstock.core.metadata.topic_names import BROKERS_TOPICS, COORDINATED_TOPICS
from penstock.core.replica.postponed import FOR_NOW, Place, PostponedBatches
from penstock.core.replica.producer_state import NOT_REQUIRED
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode, ProtocolError, Throttled
from penstock.model.ids import Uuid, format_uuid
from penstock.runtime.coordinator.backpressure import BackPressure
from penstock.runtime.coordinator.transaction_guard import TransactionGuard, Unverified
from penstock.runtime.env import Env
from penstock.runtime.fair_work import FairWork
from penstock.runtime.replication.admission import ADMITTED, Admission, Produced, Refusals
from penstock.runtime.replication.batch_preparation import INLINE_BYTES_MAX, Deferred, PreparedBatch, WorkBudget
from penstock.runtime.replication.leader_hints import HINTED, LeaderHints
from penstock.runtime.replication.partition import CLIENT, Appended, Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.schemas.guard import SchemaGuard, Unchecked
from penstock.runtime.security.access_control import OPEN, AccessControl
from penstock.runtime.security.tenants import Tenants
from penstock.runtime.share.dead_letter_topics import ENABLED
from penstock.storage.producers.recall import Unsearched
from penstock.wire.apis import ApiKey
from penstock.wire.compression import Compression
from penstock.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.wire.record_types import BatchError, RefusedRecords
from penstock.wire.records import HEADER_SIZE, BatchHeader, read_header

ALL = -1
LEADER = 1
NONE = 0
TOPIC_IDS_SINCE = 13
HINTS_SINCE = 10
ZSTD_SINCE = 7
# The lower byte of a batch's attributes.
ATTRIBUTES_AT = 22
CODEC = 0x07
TRANSACTIONAL = 0x10
NOBODY_DENIED: Refusals = {}
# After so many partitions of a request other clients get their turns.
ROWS_AT_ONCE_MAX = 500
# How long a request waits at most for partitions that are just being opened.
OPENING_MS_MAX = 10_000
# A connection whose waiting batches have more bytes than this is served no further ones; then it is looked at again.
WAITING_BYTES_MAX = 4 * 1024 * 1024
WAITING_PAUSE_MS = 10
# Looking up a member of an enum takes longer than checking a right.
WRITE, TOPIC, TRANSACTIONAL_ID = Operation.WRITE, ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID

Waiting = tuple[asyncio.Future[None], int, int]
Answers = list[tuple[TopicProduceData, list[PartitionProduceResponse]]]
Response = ProduceResponse | asyncio.Future[ProduceResponse] | None


class Questions(NamedTuple):
    """What must be asked before a request is appended, and what is already decided."""

    unverified: Sequence[Unverified]
    unchecked: Sequence[Unchecked]
    admission: Admission


class Opening(NamedTuple):
    """A request that waits for partitions to be opened: what there is to ask is only known then."""

    denied: Refusals
    partitions: Sequence[asyncio.Future[None]]


class Rest(NamedTuple):
    """A request of which some batches are appended, and the first of the others has to be prepared for that."""

    request: ProduceRequest
    context: RequestContext
    admission: Admission
    answers: Answers
    waiting: list[Waiting]
    refused: bool
    # From that batch on. Of the first of these topics there are answers, though there may be none in them.
    topics: Sequence[TopicProduceData]
    prepare: Callable[[], PreparedBatch] | None


class Produce:
    """Appends a request at once if possible.

    If a transaction's coordinator or the schema registry must be asked first, or a batch is so large that a worker must
    prepare it, the request waits, and the later ones of its connection wait behind it: batches must be appended in the
    order of their sequences. So it does for partitions that this broker leads as clients can know by now, but has not
    opened yet. A batch that was not seen by the checks, because its partition was not led here then, is not appended
    after them.
    """

    __slots__ = (
        "_access",
        "_backpressure",
        "_budget",
        "_env",
        "_failed",
        "_partitions",
        "_postponed",
        "_schemas",
        "_sync_on_ack",
        "_tenants",
        "_transactions",
        "_work",
    )

    def __init__(
        self,
        env: Env,
        partitions: Partitions,
        transactions: TransactionGuard,
        schemas: SchemaGuard,
        access: AccessControl,
        backpressure: BackPressure | None = None,
        *,
        tenants: Tenants | None = None,
        sync_on_ack: bool = True,
        failed: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`sync_on_ack` is penstock.sync.on.ack; `failed` is called with every error in a response."""
        self._env = env
        self._partitions = partitions
        self._transactions = transactions
        self._schemas = schemas
        self._access = access if access.is_on else None
        self._backpressure = backpressure
        self._tenants = tenants
        self._sync_on_ack = sync_on_ack
        self._failed = failed
        self._postponed = PostponedBatches()
        self._budget = WorkBudget()
        self._work = FairWork(env)

    def produce(
        self, request: ProduceRequest, context: RequestContext
    ) -> Response | Coroutine[Any, Any, ProduceResponse | None]:
        """Append at once if nothing prevents it, otherwise in turn."""
        client = context.client
        if (client.last_write is not None or self._work.held_bytes) and (
            client.waiting_bytes > WAITING_BYTES_MAX or self._work.is_full(client.principal)
        ):
            raise Throttled(WAITING_PAUSE_MS)
        denied = self._denied(request, context) if self._access is not None else NOBODY_DENIED
        opening = self._opening(request, context.api_version) if self._partitions.is_behind else None
        if opening:
            return self._append_in_turn(request, context, Opening(denied, opening))
        if client.last_write is None and not denied and not request.transactional_id and not self._schemas.watched:
            response = self._append_topics(request, context, ADMITTED, [], [], False, request.topic_data, None)
            return self._append_in_turn(request, context, response) if isinstance(response, Rest) else response
        questions = self._questions(request, context.api_version, denied)
        if client.last_write is None and not questions.unverified and not questions.unchecked:
            response = self._append(request, context, questions.admission)
            return self._append_in_turn(request, context, response) if isinstance(response, Rest) else response
        return self._append_in_turn(request, context, questions)

    def _append_in_turn(
        self, request: ProduceRequest, context: RequestContext, work: Questions | Rest | Opening
    ) -> Coroutine[Any, Any, ProduceResponse | None]:
        # From now on later requests wait, though this one's coroutine has not started yet.
        client = context.client
        before = client.last_write
        appended = client.last_write = asyncio.get_running_loop().create_future()
        size_bytes = sum(len(data.records or b"") for topic in request.topic_data for data in topic.partition_data)
        client.waiting_bytes += size_bytes
        return self._wait_and_append(
            request, context, work, self._named_topics(request, context), before, appended, size_bytes
        )

    def _named_topics(self, request: ProduceRequest, context: RequestContext) -> Mapping[str, Uuid | None] | None:
        """The topics that have the names in a request, for as long as it waits; None if it names them by their ids."""
        if context.api_version >= TOPIC_IDS_SINCE:
            return None
        known = {topic.name: self._partitions.image.topics.get(topic.name) for topic in request.topic_data}
        return {name: None if topic is None else topic.topic_id for name, topic in known.items()}

    async def _wait_and_append(
        self,
        request: ProduceRequest,
        context: RequestContext,
        work: Questions | Rest | Opening,
        topic_ids: Mapping[str, Uuid | None] | None,
        before: asyncio.Future[None] | None,
        appended: asyncio.Future[None],
        size_bytes: int,
    ) -> ProduceResponse | None:
        client = context.client
        try:
            if isinstance(work, Opening):
                await asyncio.wait(work.partitions, timeout=max(0, min(request.timeout_ms, OPENING_MS_MAX)) / 1000)
                work = self._questions(request, context.api_version, work.denied)
            response: Response | Rest
            if isinstance(work, Rest):
                response = work._replace(admission=work.admission._replace(topic_ids=topic_ids))
            else:
                admission = (await self._ask(request, context, work))._replace(topic_ids=topic_ids)
                if before is not None:
                    await asyncio.shield(before)
                response = self._append(request, context, admission)
            while isinstance(response, Rest):
                response = await self._append_rest(response)
        finally:
            client.waiting_bytes -= size_bytes
            if before is None or before.done():
                _pass_turn(client, appended)
            else:
                # It failed while it waited. Those behind it still wait for those before it.
                before.add_done_callback(lambda _: _pass_turn(client, appended))
        return await response if isinstance(response, asyncio.Future) else response

    async def _ask(self, request: ProduceRequest, context: RequestContext, questions: Questions) -> Admission:
        unverified, unchecked, admission = questions
        refusals = {**admission.refusals}
        if unchecked:
            refusals |= await self._schemas.ask(unchecked)
        if unverified:
            name = request.transactional_id or ""
            refusals |= await self._transactions.verify(name, unverified, context.api_version)
        return admission._replace(refusals=refusals)

    async def _append_rest(self, rest: Rest) -> Response | Rest:
        prepared: PreparedBatch | ApiError | None = None
        if rest.prepare is None:
            await asyncio.sleep(0)
        else:
            try:
                size_bytes = len(rest.topics[0].partition_data[0].records or b"")
                prepared = await self._work.run(rest.context.client.principal, rest.prepare, size_bytes)
            except ApiError as error:
                prepared = error.with_traceback(None)
        request, context, admission, answers, waiting, refused, topics, _ = rest
        return self._append_topics(request, context, admission, answers, waiting, refused, topics, prepared)

    def _denied(self, request: ProduceRequest, context: RequestContext) -> Refusals:
        """The batches that the client may not write: all of them if the transactional id is not its own."""
        access = self._access
        assert access is not None
        client = context.client
        name = request.transactional_id
        if _has_transactional(request) and (name is None or not access.allows(client, WRITE, TRANSACTIONAL_ID, name)):
            error = refusal(context, WRITE, TRANSACTIONAL_ID, name or "")
            return {place: error for topic in request.topic_data for place in _places(topic)}
        denied: dict[Place, ApiError] = {}
        for topic in request.topic_data:
            written = topic.name
            if context.api_version >= TOPIC_IDS_SINCE:
                known = self._partitions.image.topics_by_id.get(topic.topic_id)
                if known is None:
                    # It may be there by the time that the others are appended, but nothing has checked this right.
                    text = f"there is no topic with the id {format_uuid(topic.topic_id)}"
                    unknown = ApiError(ErrorCode.UNKNOWN_TOPIC_ID, text)
                    denied.update((place, unknown) for place in _places(topic))
                    continue
                written = known.name
            if written in BROKERS_TOPICS and not access.allows_on_cluster(client, Operation.CLUSTER_ACTION):
                # Nobody but brokers writes them, whatever rights there are on topics.
                error = refusal(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, written)
                denied.update((place, error) for place in _places(topic))
            elif not access.allows(client, WRITE, TOPIC, written) and not self._is_dead_letter(client, written):
                # A client that only knows the topic id does not learn the name.
                error = refusal(context, WRITE, TOPIC, topic.name or format_uuid(topic.topic_id))
                denied.update((place, error) for place in _places(topic))
        return denied

    def _is_dead_letter(self, client: Client, topic: str) -> bool:
        """Whether a broker writes for a share group, to a topic that takes dead letters."""
        assert self._access is not None
        own = self._partitions.image.overrides(ConfigResource.TOPIC, topic)
        is_for_them = own.get(ENABLED) == "true"
        return is_for_them and self._access.allows_on_cluster(client, Operation.CLUSTER_ACTION)

    def _opening(self, request: ProduceRequest, api_version: int) -> list[asyncio.Future[None]]:
        """What to wait for before the request's partitions can be looked up."""
        by_id = api_version >= TOPIC_IDS_SINCE
        found = (
            self._partitions.opening(topic.name, topic.topic_id, data.index, by_id=by_id)
            for topic in request.topic_data
            for data in topic.partition_data
        )
        return [opened for opened in found if opened is not None]

    def _questions(self, request: ProduceRequest, api_version: int, denied: Refusals) -> Questions:
        batches, absent = self._batches(request, by_id=api_version >= TOPIC_IDS_SINCE)
        refusals = {**absent, **denied} if absent else denied
        if denied:
            batches = [batch for batch in batches if batch.place not in denied]
        unchecked: Sequence[Unchecked] = ()
        if self._schemas.watched:
            unfit, unchecked = self._schemas.check(batches)
            refusals = {**refusals, **unfit}
        if not request.transactional_id:
            return Questions((), unchecked, Admission(refusals, {}))
        unverified = self._transactions.unverified(batches, api_version)
        tokens = {one.place: one.verification for one in unverified} if self._transactions.is_required() else None
        return Questions(unverified, unchecked, Admission(refusals, tokens))

    def _batches(self, request: ProduceRequest, *, by_id: bool) -> tuple[list[Produced], Refusals]:
        """The batches for partitions that are led here, and why the others are not appended.

        A partition may be led here by the time that the others are appended, but nothing has checked its batch.
        """
        found: list[Produced] = []
        absent: dict[Place, ApiError] = {}
        for topic in request.topic_data:
            for data in topic.partition_data:
                if data.records:
                    place = topic.name, topic.topic_id, data.index
                    try:
                        partition = self._partitions.lookup(topic.name, topic.topic_id, data.index, by_id=by_id)
                    except ApiError as error:
                        absent[place] = error.with_traceback(None)
                        continue
                    found.append(Produced(place, partition, memoryview(data.records)))
        return found, absent

    def _append(self, request: ProduceRequest, context: RequestContext, admission: Admission) -> Response | Rest:
        return self._append_topics(request, context, admission, [], [], False, request.topic_data, None)

    def _append_topics(
        self,
        request: ProduceRequest,
        context: RequestContext,
        admission: Admission,
        answers: Answers,
        waiting: list[Waiting],
        refused: bool,
        topics: Sequence[TopicProduceData],
        prepared: PreparedBatch | ApiError | None,
    ) -> Response | Rest:
        """Append batches, the first of them as it was `prepared`, until one has to be prepared.

        What there are `answers` to already ends within the first of `topics`.
        """
        acks = request.acks
        now_ms = self._env.now_ms()
        version = context.api_version
        by_id = version >= TOPIC_IDS_SINCE
        self._budget.left = INLINE_BYTES_MAX
        is_begun = bool(answers)
        rows_left = ROWS_AT_ONCE_MAX
        for number, topic in enumerate(topics):
            rows: list[PartitionProduceResponse] = []
            if is_begun and number == 0:
                rows = answers[-1][1]
            else:
                answers.append((topic, rows))
            before = len(rows)
            for data in topic.partition_data:
                rows_left -= 1
                if rows_left < 0:
                    left = topic._replace(partition_data=topic.partition_data[len(rows) - before :])
                    topics = (left, *topics[number + 1 :])
                    return Rest(request, context, admission, answers, waiting, refused, topics, None)
                try:
                    if prepared is not None and isinstance(prepared, ApiError):
                        raise prepared
                    if admission.refusals:
                        reason = admission.refusals.get((topic.name, topic.topic_id, data.index))
                        if reason is not None:
                            raise reason
                    if acks not in (ALL, LEADER, NONE):
                        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {acks}")
                    partition = self._partitions.lookup(topic.name, topic.topic_id, data.index, by_id=by_id)
                    admission.check_topic(topic.name, partition)
                    if partition.name.topic in COORDINATED_TOPICS:
                        check_append(partition.name.topic, context, self._access or OPEN)
                    if acks != ALL:
                        _check_acks(partition, acks)
                    appended = self._append_batch(partition, topic, data, acks, version, now_ms, admission, prepared)
                    prepared = None
                except Deferred as deferred:
                    left = topic._replace(partition_data=topic.partition_data[len(rows) - before :])
                    topics = (left, *topics[number + 1 :])
                    return Rest(request, context, admission, answers, waiting, refused, topics, deferred.prepare)
                except Unsearched as error:
                    prepared = None
                    place = topic.name, topic.topic_id, data.index
                    name = f"look for a repeated batch in {partition.name}"
                    recalled = self._env.spawn(self._recall(partition, place, error, acks, rows, len(rows)), name)
                    waiting.append((recalled, len(answers) - 1, len(rows)))
                    rows.append(PartitionProduceResponse(data.index))
                    continue
                except ApiError as error:
                    prepared = None
                    records = data.records
                    if error.code in FOR_NOW and records and len(records) >= HEADER_SIZE:
                        with suppress(BatchError):
                            self._postpone((topic.name, topic.topic_id, data.index), read_header(records), error)
                    # Frames that have the error in a variable would keep the request until cycles are collected.
                    error.__traceback__ = None
                    if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                        error = self._as_sure(partition, error)
                    rows.append(_refused(data.index, error))
                    refused = True
                    continue
                if acks == ALL:
                    committed = partition.committed(appended.next_offset, sync=self._sync_on_ack)
                    if not committed.done() or committed.exception() is not None:
                        waiting.append((committed, len(answers) - 1, len(rows)))
                if partition.log.is_flush_due:
                    durable = partition.sync.durable(appended.next_offset)
                    if not durable.done():
                        waiting.append((durable, len(answers) - 1, len(rows)))
                rows.append(
                    PartitionProduceResponse(
                        data.index,
                        0,
                        appended.base_offset,
                        appended.log_append_time_ms,
                        partition.log.start_offset,
                    )
                )
        throttle_ms = 0
        if self._backpressure is not None and self._backpressure.watched:
            throttle_ms = self._throttle(self._backpressure, request, context)
        if acks == NONE:
            _close_if_refused(answers)
            return None
        if waiting:
            return _park(
                answers, waiting, request.timeout_ms, lambda: self._respond(answers, context, throttle_ms, True)
            )
        return self._respond(answers, context, throttle_ms, refused)

    async def _recall(
        self,
        partition: Partition,
        place: Place,
        unsearched: Unsearched,
        acks: int,
        rows: list[PartitionProduceResponse],
        row: int,
    ) -> None:
        """Answer for a batch that may be a repeated one, when that is known and the first copy is committed."""
        index = rows[row].index
        try:
            appended = await partition.recall(unsearched)
            if acks == ALL:
                await partition.committed(appended.next_offset, sync=self._sync_on_ack)
        except ApiError as error:
            error.__traceback__ = None
            if error.code in FOR_NOW:
                self._postpone(place, unsearched.header, error)
            is_gap = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            rows[row] = _refused(index, self._as_sure(partition, error) if is_gap else error)
            return
        start_offset = partition.log.start_offset
        rows[row] = PartitionProduceResponse(index, 0, appended.base_offset, appended.log_append_time_ms, start_offset)

    def _postpone(self, place: Place, header: BatchHeader, error: ApiError) -> None:
        self._postponed.note(place, header, error, self._env.monotonic_ms())

    def _as_sure(self, partition: Partition, error: ApiError) -> ApiError:
        """Producers give up on an unexpected sequence: a leader that may have been replaced has them ask again.

        Its followers are not asked: librdkafka, which sends several batches at once, may hang if the answers to those
        behind a refused one come later than that one's.
        """
        leadership = self._partitions.leadership
        if leadership is None or leadership.is_sure(partition):
            return error
        text = f"this broker may lead {partition.name} no more: {error.message}"
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    def _throttle(self, backpressure: BackPressure, request: ProduceRequest, context: RequestContext) -> int:
        """Hold the producer back for groups that cannot keep up; later requests wait, this one is served (KIP-219)."""
        names = []
        for topic in request.topic_data:
            name = topic.name
            if context.api_version >= TOPIC_IDS_SINCE:
                known = self._partitions.image.topics_by_id.get(topic.topic_id)
                name = "" if known is None else known.name
            names += [(name, data.index) for data in topic.partition_data]
        throttle_ms = backpressure.throttle_ms(names)
        if throttle_ms and context.client.mute is not None:
            context.client.mute(throttle_ms)
        return throttle_ms

    def _append_batch(
        self,
        partition: Partition,
        topic: TopicProduceData,
        data: PartitionProduceData,
        acks: int,
        version: int,
        now_ms: int,
        admission: Admission,
        prepared: PreparedBatch | None,
    ) -> Appended:
        records = data.records
        if not records:
            raise ApiError(ErrorCode.INVALID_RECORD, "the request has no records for this partition")
        assert isinstance(records, memoryview)
        try:
            if self._postponed:
                # First: it forgets a batch that is stored by now, which would hide one that is refused below.
                self._check_turn(partition, (topic.name, topic.topic_id, data.index), records)
            self._partitions.home(partition).check_writable()
            if acks == ALL:
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
        if version < ZSTD_SINCE and attributes & CODEC == Compression.ZSTD:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
        if self._tenants is not None and self._tenants.meters:
            self._tenants.check_room(partition.name.topic, len(records))
        if attributes & TRANSACTIONAL:
            verification = admission.verification((topic.name, topic.topic_id, data.index))
            return partition.append(records, now_ms, CLIENT, verification, self._budget, prepared)
        return partition.append(records, now_ms, CLIENT, NOT_REQUIRED, self._budget, prepared)

    def _check_turn(self, partition: Partition, place: Place, records: memoryview) -> None:
        """Refuse a batch while an earlier one of its producer, which was refused for now, has not come again."""
        if len(records) < HEADER_SIZE:
            return
        now_ms = self._env.monotonic_ms()
        refusal = self._postponed.refusal(place, read_header(records), partition.log.producers, now_ms)
        if refusal is not None:
            raise refusal

    def _respond(
        self, answers: Answers, context: RequestContext, throttle_ms: int, may_have_failed: bool
    ) -> ProduceResponse:
        rows_by_topic = [TopicProduceResponse(topic.name, topic.topic_id, rows) for topic, rows in answers]
        response = ProduceResponse(rows_by_topic, throttle_ms)
        if not may_have_failed:
            return response
        codes = [row.error_code for _, rows in answers for row in rows if row.error_code]
        for code in codes:
            self._failed(code)
        if context.api_version >= HINTS_SINCE and any(code in HINTED for code in codes):
            return _with_hints(response, LeaderHints(self._partitions), context)
        return response


def _pass_turn(client: Client, appended: asyncio.Future[None]) -> None:
    """The batches of a request are appended, or never will be: the next request of its connection may go on."""
    appended.set_result(None)
    if client.last_write is appended:
        client.last_write = None


def _check_acks(partition: Partition, acks: int) -> None:
    required = partition.settings.penstock_acks_min
    if required == "all" or (required == "1" and acks == NONE):
        topic = partition.name.topic
        raise ApiError(
            ErrorCode.INVALID_REQUIRED_ACKS,
            f"topic {topic} requires acks={required} (penstock.acks.min), and the producer sent acks={acks}: "
            f"set acks={required} in the producer",
        )


def _has_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records and len(records) > ATTRIBUTES_AT and records[ATTRIBUTES_AT] & TRANSACTIONAL:
                return True
    return False


def _places(topic: TopicProduceData) -> Iterator[Place]:
    for data in topic.partition_data:
        yield topic.name, topic.topic_id, data.index


def _with_hints(response: ProduceResponse, hints: LeaderHints, context: RequestContext) -> ProduceResponse:
    by_id = context.api_version >= TOPIC_IDS_SINCE
    topics = []
    for topic in response.responses:
        rows = []
        for row in topic.partition_responses:
            leader = hints.leader(row.error_code, topic.name, topic.topic_id, row.index, by_id=by_id)
            rows.append(row._replace(current_leader=LeaderIdAndEpoch(*leader)))
        topics.append(topic._replace(partition_responses=rows))
    endpoints = hints.endpoints(context.client.listener_name, NodeEndpoint)
    return response._replace(responses=topics, node_endpoints=endpoints)


def _refused(index: int, error: ApiError) -> PartitionProduceResponse:
    refused = error.refused if isinstance(error, RefusedRecords) else ()
    records = [BatchIndexAndErrorMessage(at, why) for at, why in refused]
    return PartitionProduceResponse(index, error.code, -1, -1, -1, records, error.message)


def _close_if_refused(answers: Answers) -> None:
    for topic, rows in answers:
        for row in rows:
            if row.error_code:
                raise ProtocolError(
                    f"a record for {topic.name}-{row.index} sent with acks=0 was refused: {row.error_message}"
                )


def _park(
    answers: Answers, waiting: Sequence[Waiting], timeout_ms: int, respond: Callable[[], ProduceResponse]
) -> asyncio.Future[ProduceResponse]:
    """Answer when everything is committed and synced, or after the client's timeout."""
    loop = asyncio.get_running_loop()
    reply: asyncio.Future[ProduceResponse] = loop.create_future()
    left = len(waiting)

    def answer() -> None:
        timer.cancel()
        if reply.done():
            return
        for durable, topic, row in waiting:
            rows = answers[topic][1]
            if not durable.done() or durable.cancelled():
                error = ApiError(
                    ErrorCode.REQUEST_TIMED_OUT, f"not every in-sync replica confirmed within {timeout_ms} ms"
                )
                rows[row] = _refused(rows[row].index, error)
            elif durable.exception() is not None:
                failure = durable.exception()
                code = failure.code if isinstance(failure, ApiError) else ErrorCode.KAFKA_STORAGE_ERROR
                rows[row] = _refused(rows[row].index, ApiError(code, str(failure)))
        reply.set_result(respond())

    def one_done(_: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            answer()

    timer = loop.call_later(max(0, timeout_ms) / 1000, answer)
    for durable, _, _ in waiting:
        durable.add_done_callback(one_done)
    return reply


API = Api(
    ApiKey.PRODUCE,
    (0, 13),
    on_broker=lambda services: (
        Produce(
            services.env,
            services.partitions,
            services.transaction_guard,
            services.schema_guard,
            services.access,
            services.backpressure,
            tenants=services.tenants,
            sync_on_ack=services.settings.node.penstock_sync_on_ack,
            failed=services.counters.api("Produce").failed,
        ).produce
    ),
)
