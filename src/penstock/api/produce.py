"""Versions 3-13. KIP-98 idempotence and transactions, KIP-467 record errors, KIP-516, KIP-890, KIP-951 leader hints.

Topics may ask for registered schema ids (confluent.value.schema.validation).

`acks=1` is answered when the batch is in the log, `acks=all` when every in-sync replica has it; where this broker is
the only one of them, when it is on disk. `acks=0` gets no answer: an error there closes the connection, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.transactional_produce import Admission, Place, TransactionalProduce
from penstock.core.replica.producer_state import Verification
from penstock.model.errors import ApiError, ErrorCode, ProtocolError
from penstock.runtime.coordinator.verifier import Verify, is_verification_enabled
from penstock.runtime.env import Env
from penstock.runtime.replication.leader_hints import HINTED, LeaderHints
from penstock.runtime.replication.partition import Appended, Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.schemas.guard import NOTHING_REFUSED, Refusals, SchemaGuard
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
from penstock.wire.record_types import RefusedRecords

API = Api(
    ApiKey.PRODUCE,
    (0, 13),
    on_broker=lambda services: make_produce(
        services.env,
        services.partitions,
        services.settings.node.penstock_sync_on_ack,
        services.verify,
        lambda: is_verification_enabled(services.settings),
        services.schema_guard,
        services.counters.api("Produce").failed,
    ),
)

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

Waiting = tuple[asyncio.Future[None], int, int]
Answers = list[tuple[TopicProduceData, list[PartitionProduceResponse]]]


def make_produce(
    env: Env,
    partitions: Partitions,
    sync_on_ack: bool,
    verify: Verify | None = None,
    must_verify: Callable[[], bool] = lambda: True,
    guard: SchemaGuard | None = None,
    failed: Callable[[int], None] = lambda _: None,
) -> Handler:
    """The handler; `sync_on_ack` is penstock.sync.on.ack, `must_verify` transaction.partition.verification.enable.

    Without `verify` nothing is written in transactions; without `guard` no schema ids are looked at. `failed` is told
    of every error that is answered.
    """
    transactional = None if verify is None else TransactionalProduce(env, partitions, verify, must_verify)

    def produce(
        request: ProduceRequest, context: RequestContext
    ) -> ProduceResponse | asyncio.Future[ProduceResponse] | Coroutine[Any, Any, ProduceResponse | None] | None:
        if guard is None or not guard.watched:
            return produce_checked(request, context, NOTHING_REFUSED)  # type: ignore[no-any-return]
        batches = guarded(partitions, guard, request, by_id=context.api_version >= TOPIC_IDS_SINCE)
        reply = guard.admit(context.client, batches, lambda refusals: produce_checked(request, context, refusals))
        return unfold(reply) if asyncio.iscoroutine(reply) else reply  # type: ignore[return-value]

    def produce_checked(request: ProduceRequest, context: RequestContext, refusals: Refusals) -> Any:
        if transactional is None or not request.transactional_id:
            return produce_now(request, context, None, refusals)
        reply = transactional.admit(
            request, context.api_version, lambda admission: produce_now(request, context, admission, refusals)
        )
        return unfold(reply) if asyncio.iscoroutine(reply) else reply

    async def unfold(waiting: Awaitable[Any]) -> ProduceResponse | None:
        """The answer of a write that had to wait for its turn, and then perhaps for other replicas."""
        reply: Any = await waiting
        while isinstance(reply, asyncio.Future) or asyncio.iscoroutine(reply):
            reply = await reply
        return reply  # type: ignore[no-any-return]

    def produce_now(
        request: ProduceRequest,
        context: RequestContext,
        admission: Admission | None,
        refusals: Refusals,
    ) -> ProduceResponse | asyncio.Future[ProduceResponse] | None:
        acks = request.acks
        answers: Answers = []
        waiting: list[Waiting] = []
        now_ms = env.now_ms()
        by_id = context.api_version >= TOPIC_IDS_SINCE
        refused = False
        for topic in request.topic_data:
            rows: list[PartitionProduceResponse] = []
            answers.append((topic, rows))
            for data in topic.partition_data:
                try:
                    if acks not in (ALL, LEADER, NONE):
                        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {acks}")
                    partition = partitions.lookup(topic.name, topic.topic_id, data.index, by_id=by_id)
                    if refusals and (topic.name, topic.topic_id, data.index) in refusals:
                        raise refusals[topic.name, topic.topic_id, data.index]
                    verification = admitted(admission, (topic.name, topic.topic_id, data.index))
                    appended = append(partition, data, acks, context.api_version, now_ms, verification)
                except ApiError as error:
                    rows.append(_refused(data.index, error))
                    refused = True
                    continue
                if acks == ALL:
                    committed = partition.committed(appended.next_offset, sync=sync_on_ack)
                    if not committed.done() or committed.exception() is not None:
                        waiting.append((committed, len(answers) - 1, len(rows)))
                if partition.log.is_flush_due:
                    durable = partition.durable(appended.next_offset)
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
        if acks == NONE:
            _close_if_refused(answers)
            return None
        if waiting:
            return _park(answers, waiting, request.timeout_ms, lambda: respond(answers, context, True))
        return respond(answers, context, refused)

    def admitted(admission: Admission | None, place: Place) -> Verification | None:
        if admission is None:
            return None
        if place in admission.errors:
            code = admission.errors[place]
            raise ApiError(code, "the partition could not be verified as part of the transaction")
        return admission.verification(place)

    def append(
        partition: Partition,
        data: PartitionProduceData,
        acks: int,
        version: int,
        now_ms: int,
        verification: Verification | None,
    ) -> Appended:
        records = data.records
        if not records:
            raise ApiError(ErrorCode.INVALID_RECORD, "a partition was named, and no records were sent for it")
        partitions.home(partition).check_writable()
        if acks == ALL:
            partition.check_enough_replicas()
        attributes = records[ATTRIBUTES_AT] if len(records) > ATTRIBUTES_AT else 0
        if version < ZSTD_SINCE and attributes & CODEC == Compression.ZSTD:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
        assert isinstance(records, memoryview)
        if attributes & TRANSACTIONAL:
            return partition.append(records, now_ms, verification=verification)
        return partition.append(records, now_ms)

    def respond(answers: Answers, context: RequestContext, may_have_failed: bool) -> ProduceResponse:
        response = ProduceResponse([TopicProduceResponse(topic.name, topic.topic_id, rows) for topic, rows in answers])
        if not may_have_failed:
            return response
        codes = [row.error_code for _, rows in answers for row in rows if row.error_code]
        for code in codes:
            failed(code)
        if context.api_version >= HINTS_SINCE and any(code in HINTED for code in codes):
            return _with_hints(response, LeaderHints(partitions), context)
        return response

    return produce


def guarded(
    partitions: Partitions, guard: SchemaGuard, request: ProduceRequest, *, by_id: bool
) -> Iterator[tuple[Place, str, memoryview]]:
    """The batches for topics whose schema ids are checked; those without a partition here are refused later anyway."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                name = partitions.lookup(topic.name, topic.topic_id, data.index, by_id=by_id).name.topic
            except ApiError:
                continue
            if name in guard.watched and data.records:
                yield (topic.name, topic.topic_id, data.index), name, memoryview(data.records)


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
    """Answer when everything is committed and synced, or when the client's patience ends."""
    loop = asyncio.get_running_loop()
    reply: asyncio.Future[ProduceResponse] = loop.create_future()
    left = len(waiting)

    def answer() -> None:
        timer.cancel()
        if reply.done():
            return
        for durable, topic, row in waiting:
            rows = answers[topic][1]
            if not durable.done():
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
