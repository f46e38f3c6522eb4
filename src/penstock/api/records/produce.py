"""Versions 3-13. KIP-98 idempotence and transactions, KIP-467 record errors, KIP-516, KIP-890, KIP-951 leader hints.

Topics may require registered schema ids (confluent.value.schema.validation).

`acks=1` is answered when the batch is in the log, `acks=all` when every in-sync replica has it; if this broker is the
only one of them, when it is on disk. `acks=0` has no response: an error closes the connection, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from penstock.api.context import Client, RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.records.produce_append import ProduceAppend, Response
from penstock.api.records.produce_checks import (
    NO_REFUSALS,
    Opening,
    PendingChecks,
    denied_batches,
    named_topics,
    opening_partitions,
    pending_checks,
    run_checks,
)
from penstock.model.errors import Throttled
from penstock.wire.apis import ApiKey
from penstock.wire.messages.produce import ProduceRequest, ProduceResponse

# How long a request waits at most for partitions that are just being opened.
OPENING_MS_MAX = 10_000
# A connection whose waiting batches have more bytes than this is served no further ones; then it is looked at again.
WAITING_BYTES_MAX = 4 * 1024 * 1024
WAITING_PAUSE_MS = 10


@broker_api(
    ApiKey.PRODUCE,
    versions={
        0: "the first version; advertised for old clients' checks, but refused",
        1: "the throttle time in the response (KIP-13); advertised, but refused",
        2: "log append times in the response (KIP-32); advertised, but refused",
        3: "the first version served: transactional ids and record batches of format 2 (KIP-98)",
        4: "the same fields; KAFKA_STORAGE_ERROR may be returned (KIP-112)",
        5: "the partition's log start offset in the response",
        6: "the same fields; brokers throttle after the response (KIP-219)",
        7: "the same fields; batches may be compressed with zstd (KIP-110)",
        8: "the response names the refused records, with reasons (KIP-467)",
        9: "flexible versions (KIP-482)",
        10: "the response hints at the new leader and its address (KIP-951)",
        11: "the same fields; TRANSACTION_ABORTABLE may be returned (KIP-890)",
        12: "the same fields; a produce request adds its partitions to the transaction (KIP-890)",
        13: "topic ids instead of names (KIP-516)",
    },
)
def produce(
    services: BrokerServices, request: ProduceRequest, context: RequestContext
) -> Response | Coroutine[Any, Any, ProduceResponse | None]:
    """Append at once if nothing prevents it, otherwise in turn.

    If a transaction's coordinator or the schema registry must be asked first, or a batch is so large that a worker must
    prepare it, the request waits, and the later ones of its connection wait behind it: batches must be appended in the
    order of their sequences. So it does for partitions that this broker leads as clients can know by now, but has not
    opened yet. A batch that was not seen by the checks, because its partition was not led here then, is not appended
    after them.
    """
    client = context.client
    work = services.produce_work
    if (client.last_write is not None or work.fair.held_bytes) and (
        client.waiting_bytes > WAITING_BYTES_MAX or work.fair.is_full(client.principal)
    ):
        raise Throttled(WAITING_PAUSE_MS)
    denied = denied_batches(services, request, context) if services.access.is_on else NO_REFUSALS
    append = ProduceAppend(services, request, context)
    if services.partitions.is_behind:
        opening = opening_partitions(services, request, context)
        if opening:
            return _append_in_turn(append, Opening(denied, opening))
    checks = None
    if client.last_write is not None or denied or request.transactional_id or services.schema_guard.watched:
        checks = pending_checks(services, request, context, denied)
        if client.last_write is not None or checks.unverified or checks.unchecked:
            return _append_in_turn(append, checks)
        append.admission = checks.admission
    return append.response() if append.proceed() else _append_in_turn(append, None)


def _append_in_turn(
    append: ProduceAppend, first: Opening | PendingChecks | None
) -> Coroutine[object, object, ProduceResponse | None]:
    """Append after the earlier requests of the connection, and after what must happen `first`."""
    # From now on later requests wait, though this one's coroutine has not started yet.
    client = append.context.client
    before = client.last_write
    appended = client.last_write = asyncio.get_running_loop().create_future()
    topics = append.request.topic_data
    size_bytes = sum(len(data.records or b"") for topic in topics for data in topic.partition_data)
    client.waiting_bytes += size_bytes
    append.admission = append.admission._replace(
        topic_ids=named_topics(append.services, append.request, append.context)
    )
    return _wait_and_append(append, first, before, appended, size_bytes)


async def _wait_and_append(
    append: ProduceAppend,
    first: Opening | PendingChecks | None,
    before: asyncio.Future[None] | None,
    appended: asyncio.Future[None],
    size_bytes: int,
) -> ProduceResponse | None:
    services, request, context = append.services, append.request, append.context
    client = context.client
    try:
        if isinstance(first, Opening):
            timeout_ms = max(0, min(request.timeout_ms, OPENING_MS_MAX))
            await asyncio.wait(first.partitions, timeout=timeout_ms / 1000)
            first = pending_checks(services, request, context, first.denied)
        is_done = False
        if first is not None:
            admission = await run_checks(services, request, context, first)
            append.admission = admission._replace(topic_ids=append.admission.topic_ids)
            if before is not None:
                await asyncio.shield(before)
            is_done = append.proceed()
        while not is_done:
            is_done = append.proceed(await append.prepare_next())
        response = append.response()
    finally:
        client.waiting_bytes -= size_bytes
        if before is None or before.done():
            _pass_turn(client, appended)
        else:
            # It failed while it waited. Those behind it still wait for those before it.
            before.add_done_callback(lambda _: _pass_turn(client, appended))
    return await response if isinstance(response, asyncio.Future) else response


def _pass_turn(client: Client, appended: asyncio.Future[None]) -> None:
    """The request's batches are appended, or never will be: the next request of its connection may continue."""
    appended.set_result(None)
    if client.last_write is appended:
        client.last_write = None
