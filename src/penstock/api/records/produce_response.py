"""The response to a produce request: rows with errors, leader hints, and the wait for replicas and disks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices
from penstock.api.records.produce_checks import TOPIC_IDS_SINCE
from penstock.model.errors import ApiError, ErrorCode, ProtocolError
from penstock.runtime.replication.leader_hints import HINTED, LeaderHints
from penstock.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.wire.record_types import RefusedRecords

HINTS_SINCE = 10

# A future that a row waits for, and the position of its topic and of the row.
Waiting = tuple[asyncio.Future[None], int, int]
Answers = list[tuple[TopicProduceData, list[PartitionProduceResponse]]]


def respond(
    services: BrokerServices, answers: Answers, context: RequestContext, throttle_ms: int, *, may_have_failed: bool
) -> ProduceResponse:
    """The response; errors are counted, and clients learn the leader of partitions that are led elsewhere."""
    rows_by_topic = [TopicProduceResponse(topic.name, topic.topic_id, rows) for topic, rows in answers]
    response = ProduceResponse(rows_by_topic, throttle_ms)
    if not may_have_failed:
        return response
    codes = [row.error_code for _, rows in answers for row in rows if row.error_code]
    failed = services.counters.api("Produce").failed
    for code in codes:
        failed(code)
    if context.api_version >= HINTS_SINCE and any(code in HINTED for code in codes):
        return _with_hints(response, LeaderHints(services.partitions), context)
    return response


def respond_later(
    answers: Answers, waiting: Sequence[Waiting], timeout_ms: int, respond: Callable[[], ProduceResponse]
) -> asyncio.Future[ProduceResponse]:
    """The response when everything is committed and synced, or after the client's timeout."""
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
                rows[row] = refused_row(rows[row].index, error)
            elif durable.exception() is not None:
                failure = durable.exception()
                code = failure.code if isinstance(failure, ApiError) else ErrorCode.KAFKA_STORAGE_ERROR
                rows[row] = refused_row(rows[row].index, ApiError(code, str(failure)))
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


def refused_row(index: int, error: ApiError) -> PartitionProduceResponse:
    """The answer for a batch that was not appended."""
    refused = error.refused if isinstance(error, RefusedRecords) else ()
    records = [BatchIndexAndErrorMessage(at, why) for at, why in refused]
    return PartitionProduceResponse(index, error.code, -1, -1, -1, records, error.message)


def close_if_refused(answers: Answers) -> None:
    """Raises ProtocolError if a batch was refused: without a response, closing the connection is all that is left."""
    for topic, rows in answers:
        for row in rows:
            if row.error_code:
                raise ProtocolError(
                    f"a record for {topic.name}-{row.index} sent with acks=0 was refused: {row.error_message}"
                )


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
