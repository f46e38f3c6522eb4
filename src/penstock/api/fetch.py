"""Versions 4-18. KIP-74 response size, KIP-98 isolation levels, KIP-227 sessions, KIP-320 epochs, KIP-516 topic ids.

A fetch that finds less than `min_bytes` waits up to `max_wait_ms` for more. The first partition with data yields at
least one whole batch, however large, so that a consumer can always get on.
Not yet: fetches by followers, and reading from the closest replica (KIP-392).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.api.context import Handler, RequestContext
from penstock.core.replica.fetch_session import FetchContext, SessionCache, Wanted
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.env import Env
from penstock.runtime.parked import LongPoll
from penstock.runtime.partition import Partition
from penstock.runtime.partitions import Partitions
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

TOPIC_IDS_SINCE = 13
READ_COMMITTED = 1


class Key(NamedTuple):
    """A partition as a fetch names it: by topic name before version 13, by topic id since."""

    topic: str
    topic_id: Uuid
    partition: int


class Found(NamedTuple):
    """One partition's answer."""

    key: Key
    data: PartitionData
    size_bytes: int


def make_fetch(env: Env, partitions: Partitions, sessions: SessionCache, response_bytes_max: int) -> Handler:
    """The handler; `response_bytes_max` is fetch.max.bytes."""

    def fetch(request: FetchRequest, context: RequestContext) -> FetchResponse | asyncio.Future[FetchResponse]:
        by_id = context.api_version >= TOPIC_IDS_SINCE
        session = sessions.open(
            request.session_id, request.session_epoch, _wanted(request), _forgotten(request), env.now_ms()
        )
        if session.error:
            return FetchResponse(error_code=session.error)
        asked: list[tuple[Key, Wanted]]
        if session.session is not None:
            asked = [(key, cached.wanted) for key, cached in session.session.partitions.items()]  # type: ignore[misc]
        else:
            asked = list(_wanted(request))
        found = collect(asked, request, by_id)
        size = sum(row.size_bytes for row in found)
        if (
            size >= request.min_bytes
            or request.max_wait_ms <= 0
            or any(row.data.error_code for row in found)
            or not asked
        ):
            return _respond(session, found)
        poll = LongPoll(
            watched(asked, by_id),
            request.min_bytes - size,
            request.max_wait_ms,
            lambda: _respond(session, collect(asked, request, by_id)),
        )
        return poll.reply

    def collect(asked: Iterable[tuple[Key, Wanted]], request: FetchRequest, by_id: bool) -> list[Found]:
        room = min(request.max_bytes, response_bytes_max)
        committed_only = request.isolation_level == READ_COMMITTED
        is_follower = max(request.replica_id, request.replica_state.replica_id) >= 0
        found = []
        first = True
        for key, wanted in asked:
            try:
                if is_follower:
                    raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "no other broker holds a replica here")
                partition = partitions.lookup(key.topic, key.topic_id, key.partition, by_id=by_id)
                row = read(partition, key, wanted, room, committed_only, first)
            except ApiError as error:
                found.append(Found(key, PartitionData(key.partition, error.code, -1, records=b""), 0))
                continue
            if row.size_bytes:
                room -= row.size_bytes
                first = False
            found.append(row)
        return found

    def read(partition: Partition, key: Key, wanted: Wanted, room: int, committed_only: bool, first: bool) -> Found:
        partition.check_leader_epoch(wanted.leader_epoch)
        directory = partitions.home(partition)
        if directory.failure is not None:
            directory.check_writable()
        log = partition.log
        error = 0
        data = b""
        try:
            size_max = min(wanted.bytes_max, room)
            if size_max > 0 or first:
                data = partition.read(
                    wanted.offset, max(0, size_max), committed_only=committed_only, minimum_one_batch=first
                ).read()
        except ApiError as problem:
            # The client needs the log's bounds to find out where to go on.
            error = problem.code
        return Found(
            key,
            PartitionData(
                key.partition,
                error,
                partition.state.high_watermark,
                partition.last_stable_offset,
                log.start_offset,
                aborted_transactions=() if committed_only else None,
                records=data,
            ),
            len(data),
        )

    def watched(asked: Iterable[tuple[Key, Wanted]], by_id: bool) -> Iterator[Partition]:
        for key, _ in asked:
            try:
                yield partitions.lookup(key.topic, key.topic_id, key.partition, by_id=by_id)
            except ApiError:
                continue

    return fetch


def _wanted(request: FetchRequest) -> Iterator[tuple[Key, Wanted]]:
    for topic in request.topics:
        for row in topic.partitions:
            yield (
                Key(topic.topic, topic.topic_id, row.partition),
                Wanted(
                    row.fetch_offset,
                    row.partition_max_bytes,
                    row.current_leader_epoch,
                    row.log_start_offset,
                    row.last_fetched_epoch,
                ),
            )


def _forgotten(request: FetchRequest) -> Iterator[Key]:
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            yield Key(topic.topic, topic.topic_id, partition)


def _respond(context: FetchContext, found: Sequence[Found]) -> FetchResponse:
    session = context.session
    if session is not None:
        told = [
            row
            for row in found
            if session.worth_telling(
                row.key, row.data.high_watermark, row.data.log_start_offset, row.size_bytes, row.data.error_code
            )
            or not context.incremental
        ]
    else:
        told = list(found)
    topics: dict[tuple[str, Uuid], list[PartitionData]] = {}
    for row in told:
        topics.setdefault((row.key.topic, row.key.topic_id), []).append(row.data)
    return FetchResponse(
        session_id=context.session_id,
        responses=[FetchableTopicResponse(topic, topic_id, rows) for (topic, topic_id), rows in topics.items()],
    )
