"""Versions 4-18. KIP-74 sizes, KIP-98 isolation, KIP-227 sessions, KIP-320 epochs, KIP-392, KIP-405, KIP-516, KIP-951.

A fetch that finds less than `min_bytes` waits up to `max_wait_ms` for more. The first partition with data returns at
least one whole batch, however large, so that a consumer always makes progress. A consumer that sends its rack may be
directed to a replica there; followers serve consumers what they know to be committed. What is only in object storage
is waited for, up to remote.fetch.max.wait.ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import TypeVar

from penstock.api.context import Client, RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.pieces import next_turn
from penstock.api.records.fetch_reader import FetchReader
from penstock.core.metrics.counters import FETCH_BY_CONSUMERS
from penstock.core.replica.fetch_session import FetchContext, Wanted
from penstock.model.access import ANONYMOUS, Operation
from penstock.runtime.replication.fetch_rows import (
    FetchedPartition,
    FetchKey,
    ResponseBuilder,
    forgotten_in,
    is_follower,
    respond,
    wanted_in,
)
from penstock.runtime.replication.long_poll import LongPoll
from penstock.runtime.tier.remote_logs import RemoteLogs
from penstock.runtime.tier.tiered_fetch import TieredFetch
from penstock.wire.apis import ApiKey
from penstock.wire.messages.fetch import FetchRequest, FetchResponse

# A fetch of more partitions is served in pieces.
AT_ONCE_MAX = 1_000
PIECE_ROWS = 200

T = TypeVar("T")


@broker_api(
    ApiKey.FETCH,
    versions={
        4: "the first version still served: isolation levels and aborted transactions (KIP-98)",
        5: "log start offsets of followers in the request, of partitions in the response (KIP-107)",
        6: "the same fields; KAFKA_STORAGE_ERROR may be returned (KIP-112)",
        7: "incremental fetch sessions (KIP-227)",
        8: "the same fields; brokers throttle after the response (KIP-219)",
        9: "the leader epoch that the client knows, so that a stale one is noticed (KIP-320)",
        10: "the same fields; batches may be compressed with zstd (KIP-110)",
        11: "the consumer's rack, and in the response a replica to read from instead (KIP-392)",
        12: "flexible versions (KIP-482); epochs of fetched records, diverging logs (KIP-595)",
        13: "topic ids instead of names (KIP-516)",
        14: "the same fields; OFFSET_MOVED_TO_TIERED_STORAGE may be returned (KIP-405)",
        15: "followers send their broker epoch along with their id (KIP-903)",
        16: "the response contains the addresses of new leaders (KIP-951)",
        17: "the id of the replica's log directory in the request (KIP-853)",
        18: "the high watermark that the follower knows in the request (KIP-1166)",
    },
)
def fetch(
    services: BrokerServices, request: FetchRequest, context: RequestContext
) -> FetchResponse | asyncio.Future[FetchResponse] | Coroutine[object, object, FetchResponse]:
    client = context.client
    # A client that only claims to be a replica is rejected: it must not move a high watermark.
    if is_follower(request) and services.access.allows_on_cluster(client, Operation.CLUSTER_ACTION):
        return services.follower_fetch.fetch(request, context.api_version, client)
    opened = services.sessions.open(
        request.session_id,
        request.session_epoch,
        wanted_in(request),
        forgotten_in(request),
        services.env.monotonic_ms(),
        owner=_owner(client),
    )
    if opened.error:
        services.counters.api(FETCH_BY_CONSUMERS).failed(opened.error)
        return FetchResponse(error_code=opened.error)
    wanted: Sequence[tuple[FetchKey, Wanted]]
    if opened.session is not None:
        wanted = [(key, cached.wanted) for key, cached in opened.session.partitions.items()]  # type: ignore[misc]
    else:
        wanted = [*wanted_in(request)]
    reader = FetchReader(services, request, context)
    if len(wanted) > AT_ONCE_MAX:
        return _fetch_in_turns(services, opened, wanted, reader, request, context)

    def respond_with(found: Sequence[FetchedPartition]) -> FetchResponse:
        return respond(opened, found, services.partitions, context.api_version, client.listener_name)

    async def respond_from_tier(tier: RemoteLogs, found: Sequence[FetchedPartition]) -> FetchResponse:
        return respond_with(await _fill_from_tier(tier, reader, wanted, found))

    found = reader.read(wanted)
    if services.tier is not None and any(row.is_moved for row in found):
        return asyncio.ensure_future(respond_from_tier(services.tier, found))
    size_bytes = sum(row.size_bytes for row in found)
    if size_bytes >= request.min_bytes or request.max_wait_ms <= 0 or not wanted or any(map(_ends_the_wait, found)):
        return respond_with(found)
    reader.uncount(found)
    poll = LongPoll(
        reader.partitions(wanted),
        request.min_bytes - size_bytes,
        request.max_wait_ms,
        lambda: respond_with(reader.read(wanted)),
    )
    return poll.reply


async def _fetch_in_turns(
    services: BrokerServices,
    opened: FetchContext,
    wanted: Sequence[tuple[FetchKey, Wanted]],
    reader: FetchReader,
    request: FetchRequest,
    context: RequestContext,
) -> FetchResponse:
    """As `fetch`, for so many partitions that other clients get their turns meanwhile."""
    found = await _read_in_turns(reader, wanted)
    size_bytes = sum(row.size_bytes for row in found)
    if services.tier is not None and any(row.is_moved for row in found):
        found = await _fill_from_tier(services.tier, reader, wanted, found)
    elif size_bytes < request.min_bytes and request.max_wait_ms > 0 and not any(map(_ends_the_wait, found)):
        reader.uncount(found)
        followed = [partition async for piece in pieces_of(wanted) for partition in reader.partitions(piece)]
        await LongPoll(followed, request.min_bytes - size_bytes, request.max_wait_ms, lambda: None).reply
        found = await _read_in_turns(reader, wanted)
    builder = ResponseBuilder(opened, services.partitions, context.api_version)
    async for rows in pieces_of(found):
        builder.add(rows)
    return builder.response(context.client.listener_name)


async def _read_in_turns(reader: FetchReader, wanted: Sequence[tuple[FetchKey, Wanted]]) -> list[FetchedPartition]:
    found: list[FetchedPartition] = []
    size_bytes = 0
    async for piece in pieces_of(wanted):
        # Rights are checked with each piece: a topic may be created between two turns.
        rows = reader.read(piece, size_bytes)
        size_bytes += sum(row.size_bytes for row in rows)
        found += rows
    return found


async def _fill_from_tier(
    tier: RemoteLogs, reader: FetchReader, wanted: Sequence[tuple[FetchKey, Wanted]], found: Sequence[FetchedPartition]
) -> list[FetchedPartition]:
    tiered = TieredFetch(tier, reader.on_error)
    return await tiered.fill(found, dict(wanted), reader.find, reader.bytes_max, committed_only=reader.committed_only)


async def pieces_of(rows: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """The rows of a large fetch in pieces, after each of which other clients get their turns."""
    for start in range(0, len(rows), PIECE_ROWS):
        yield rows[start : start + PIECE_ROWS]
        await next_turn()


def _ends_the_wait(row: FetchedPartition) -> bool:
    return bool(row.data.error_code) or row.data.preferred_read_replica >= 0


def _owner(client: Client) -> str:
    """Whom a session is charged to: one user must not take the sessions of others."""
    return client.principal if client.principal != ANONYMOUS else client.host
