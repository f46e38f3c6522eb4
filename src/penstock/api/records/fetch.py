"""Versions 4-18. KIP-74 sizes, KIP-98 isolation, KIP-227 sessions, KIP-320 epochs, KIP-392, KIP-405, KIP-516, KIP-951.

A fetch that finds less than `min_bytes` waits up to `max_wait_ms` for more. The first partition with data returns at
least one whole batch, however large, so that a consumer always makes progress. A consumer that sends its rack may be
directed to a replica there; followers serve consumers what they know to be committed. What is only in object storage
is waited for, up to remote.fetch.max.wait.ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from typing import Any, TypeVar

from penstock.api.access import refusal
from penstock.api.context import Client, Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.pieces import next_turn
from penstock.core.metrics.counters import FETCH_BY_CONSUMERS
from penstock.core.replica.fencing import check_leader_epoch
from penstock.core.replica.fetch_session import FetchContext, SessionCache, Wanted
from penstock.core.replica.replica_selector import choose_replica
from penstock.model.access import ANONYMOUS, Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.env import Env
from penstock.runtime.replication.absence import note_read_failure
from penstock.runtime.replication.fetch_rows import (
    Found,
    Key,
    ResponseBuilder,
    forgotten_in,
    is_follower,
    respond,
    wanted_in,
)
from penstock.runtime.replication.follower_fetch import FollowerFetch
from penstock.runtime.replication.long_poll import LongPoll
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.security.access_control import AccessControl
from penstock.runtime.tier.remote_logs import RemoteLogs
from penstock.runtime.tier.tiered_fetch import TieredFetch
from penstock.wire.apis import ApiKey
from penstock.wire.messages.fetch import AbortedTransaction, FetchRequest, FetchResponse, PartitionData
from penstock.wire.records import HEADER_SIZE, LENGTH_OVERHEAD, read_header

TOPIC_IDS_SINCE = 13
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS_SINCE = 11
READ_COMMITTED = 1
ABORTED_AT_ONCE = 50
# The position of a batch's length.
LENGTH_AT = 8
# A fetch of more partitions is served in pieces.
AT_ONCE_MAX = 1_000
PIECE_ROWS = 200
READ, TOPIC = Operation.READ, ResourceType.TOPIC
T = TypeVar("T")
NONE_UNREADABLE: frozenset[tuple[str, Uuid]] = frozenset()


def make_fetch(
    env: Env,
    partitions: Partitions,
    sessions: SessionCache,
    followers: FollowerFetch,
    response_bytes_max: int,
    access: AccessControl,
    *,
    by_rack: bool = False,
    failed: Callable[[int], None] = lambda _: None,
    tier: RemoteLogs | None = None,
) -> Handler:
    """The handler; `response_bytes_max` is fetch.max.bytes, `by_rack` whether replica.selector.class considers racks.

    `failed` is called with every error that a consumer gets.
    """
    from_tier = TieredFetch(tier, failed) if tier is not None else None

    def fetch(
        request: FetchRequest, context: RequestContext
    ) -> FetchResponse | asyncio.Future[FetchResponse] | Coroutine[Any, Any, FetchResponse]:
        # A client that only claims to be a replica is rejected: it must not move a high watermark.
        if is_follower(request) and access.allows_on_cluster(context.client, Operation.CLUSTER_ACTION):
            return followers.fetch(request, context.api_version, context.client)
        session = sessions.open(
            request.session_id,
            request.session_epoch,
            wanted_in(request),
            forgotten_in(request),
            env.monotonic_ms(),
            owner=_owner(context.client),
        )
        if session.error:
            failed(session.error)
            return FetchResponse(error_code=session.error)
        asked: list[tuple[Key, Wanted]]
        if session.session is not None:
            asked = [(key, cached.wanted) for key, cached in session.session.partitions.items()]  # type: ignore[misc]
        else:
            asked = list(wanted_in(request))
        if len(asked) > AT_ONCE_MAX:
            return fetch_in_turns(session, asked, request, context)
        found = collect(asked, request, context)
        if from_tier is not None and any(row.is_moved for row in found):

            async def answer_from_tier() -> FetchResponse:
                rows = await fill_from_tier(from_tier, found, asked, request, context)
                return respond(session, rows, partitions, context.api_version, context.client.listener_name)

            return asyncio.ensure_future(answer_from_tier())
        size = sum(row.size_bytes for row in found)
        if size >= request.min_bytes or request.max_wait_ms <= 0 or not asked or any(map(_ends_the_wait, found)):
            return respond(session, found, partitions, context.api_version, context.client.listener_name)
        uncount(found, context)
        poll = LongPoll(
            watched(asked, context),
            request.min_bytes - size,
            request.max_wait_ms,
            lambda: respond(
                session,
                collect(asked, request, context),
                partitions,
                context.api_version,
                context.client.listener_name,
            ),
        )
        return poll.reply

    async def fetch_in_turns(
        session: FetchContext, asked: Sequence[tuple[Key, Wanted]], request: FetchRequest, context: RequestContext
    ) -> FetchResponse:
        """As `fetch`, for so many partitions that other clients get their turns meanwhile."""
        found = await collect_in_turns(asked, request, context)
        size = sum(row.size_bytes for row in found)
        if from_tier is not None and any(row.is_moved for row in found):
            found = await fill_from_tier(from_tier, found, asked, request, context)
        elif size < request.min_bytes and request.max_wait_ms > 0 and not any(map(_ends_the_wait, found)):
            uncount(found, context)
            followed = [partition async for piece in pieces_of(asked) for partition in watched(piece, context)]
            await LongPoll(followed, request.min_bytes - size, request.max_wait_ms, lambda: None).reply
            found = await collect_in_turns(asked, request, context)
        builder = ResponseBuilder(session, partitions, context.api_version)
        async for rows in pieces_of(found):
            builder.add(rows)
        return builder.response(context.client.listener_name)

    async def collect_in_turns(
        asked: Sequence[tuple[Key, Wanted]], request: FetchRequest, context: RequestContext
    ) -> list[Found]:
        found: list[Found] = []
        size_bytes = 0
        async for piece in pieces_of(asked):
            # Rights are checked with each piece: a topic may be created between two turns.
            rows = collect(piece, request, context, size_bytes)
            size_bytes += sum(row.size_bytes for row in rows)
            found += rows
        return found

    async def fill_from_tier(
        from_tier: TieredFetch,
        found: Sequence[Found],
        asked: Iterable[tuple[Key, Wanted]],
        request: FetchRequest,
        context: RequestContext,
    ) -> list[Found]:
        return await from_tier.fill(
            found,
            dict(asked),
            lambda key: find(key, context),
            min(request.max_bytes, response_bytes_max),
            committed_only=request.isolation_level == READ_COMMITTED,
        )

    def uncount(found: Iterable[Found], context: RequestContext) -> None:
        """What was read is not sent now, and is counted when it is."""
        for row in found:
            if row.size_bytes:
                with suppress(ApiError):
                    find(row.key, context).counters.read(-row.size_bytes)

    def collect(
        asked: Iterable[tuple[Key, Wanted]], request: FetchRequest, context: RequestContext, size_bytes: int = 0
    ) -> list[Found]:
        """What there is for each partition; `size_bytes` is that of the rows before these."""
        room = min(request.max_bytes, response_bytes_max) - size_bytes
        committed_only = request.isolation_level == READ_COMMITTED
        rack = request.rack_id if by_rack else ""
        unreadable = denied(asked, request, context) if access.is_on else NONE_UNREADABLE
        found = []
        first = not size_bytes
        for key, wanted in asked:
            try:
                if unreadable and (key.topic, key.topic_id) in unreadable:
                    raise refusal(context, READ, TOPIC, key.topic)
                partition = find(key, context)
                row = nearer(partition, key, wanted, rack) if rack else None
                if row is None:
                    row = read(partition, key, wanted, room, committed_only, first)
            except ApiError as error:
                failed(error.code)
                found.append(Found(key, PartitionData(key.partition, error.code, -1, records=b""), 0))
                continue
            if row.size_bytes:
                room -= row.size_bytes
                first = False
            found.append(row)
        return found

    def denied(
        asked: Iterable[tuple[Key, Wanted]], request: FetchRequest, context: RequestContext
    ) -> Set[tuple[str, Uuid]]:
        """The topics that the client may not read, as it names them. Rights are checked for every fetch."""
        named = {(key.topic, key.topic_id) for key, _ in asked}
        if is_follower(request):
            return named
        if context.api_version < TOPIC_IDS_SINCE:
            names = {topic: topic[0] for topic in named}
        else:
            topics = partitions.image.topics_by_id
            names = {topic: topics[topic[1]].name for topic in named if topic[1] in topics}
        return {topic for topic, name in names.items() if not access.allows(context.client, READ, TOPIC, name)}

    def find(key: Key, context: RequestContext) -> Partition:
        by_id = context.api_version >= TOPIC_IDS_SINCE
        if context.api_version >= RACKS_SINCE:
            return partitions.replica(key.topic, key.topic_id, key.partition, by_id=by_id)
        return partitions.lookup(key.topic, key.topic_id, key.partition, by_id=by_id)

    def nearer(partition: Partition, key: Key, wanted: Wanted, rack: str) -> Found | None:
        """The response that directs a consumer to a replica in its rack; None when it is served here."""
        leading = partition.leading
        if leading is None or not leading.has_followers:
            return None
        brokers = partitions.image.brokers
        racks = {replica: brokers[replica].registration.rack for replica in partition.replicas if replica in brokers}
        chosen = choose_replica(leading, racks, rack, wanted.offset)
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
        return Found(key, data, 0)

    def read(partition: Partition, key: Key, wanted: Wanted, room: int, committed_only: bool, first: bool) -> Found:
        check_leader_epoch(wanted.leader_epoch, partition.state.leader_epoch)
        directory = partitions.home(partition)
        if directory.failure is not None:
            directory.check_writable()
        log = partition.log
        error = 0
        is_moved = False
        data = b""
        try:
            size_max = min(wanted.bytes_max, room)
            if size_max > 0 or first:
                data = partition.read(
                    wanted.offset, max(0, size_max), committed_only=committed_only, minimum_one_batch=first
                ).read()
            partition.counters.read(len(data))
        except ApiError as problem:
            is_moved = problem.code is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
            if not is_moved:
                # The client needs the log's bounds to find out where to continue.
                error = note_read_failure(partition, problem)
                failed(error)
        return Found(
            key,
            PartitionData(
                key.partition,
                error,
                partition.state.high_watermark,
                partition.last_stable_offset,
                log.start_offset,
                aborted_transactions=_aborted(partition, wanted.offset, data) if committed_only else None,
                records=data,
            ),
            len(data),
            is_moved,
        )

    def watched(asked: Iterable[tuple[Key, Wanted]], context: RequestContext) -> Iterator[Partition]:
        for key, _ in asked:
            try:
                yield find(key, context)
            except ApiError:
                continue

    return fetch


async def pieces_of(rows: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """The rows of a large fetch in pieces, after each of which other clients get their turns."""
    for start in range(0, len(rows), PIECE_ROWS):
        yield rows[start : start + PIECE_ROWS]
        await next_turn()


def _owner(client: Client) -> str:
    """Whom a session is charged to: one user must not take the sessions of others."""
    return client.principal if client.principal != ANONYMOUS else client.host


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


def _ends_the_wait(row: Found) -> bool:
    return bool(row.data.error_code) or row.data.preferred_read_replica >= 0


API = Api(
    ApiKey.FETCH,
    (4, 18),
    on_broker=lambda services: make_fetch(
        services.env,
        services.partitions,
        services.sessions,
        services.follower_fetch,
        services.settings.node.fetch_max_bytes,
        services.access,
        by_rack=services.settings.node.replica_selector_class == RACK_AWARE_SELECTOR,
        failed=services.counters.api(FETCH_BY_CONSUMERS).failed,
        tier=services.tier,
    ),
)
