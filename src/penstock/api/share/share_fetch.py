"""Versions 1-2. KIP-932: records for a member of a share group. KIP-1206 strict limits, KIP-1222 renewed locks.

A fetch that finds less than `min_bytes` waits up to `max_wait_ms`, for records that are appended or come back from
other members. Acknowledgements that come along are carried out first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from penstock.api.context import Client, RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.pieces import ROWS_MAX, in_turns
from penstock.api.share.share_requests import (
    NO_ERROR,
    PartitionAcknowledgements,
    acknowledge,
    check_share_request,
    check_topic,
    message_of,
    session_owner,
)
from penstock.config.offset_reset import OffsetReset
from penstock.core.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, TopicIdPartition
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.replication.leader_hints import LeaderHints
from penstock.runtime.replication.watcher import EVERYTHING
from penstock.runtime.share.led_partition import AcquiredBatch, LedSharePartition
from penstock.runtime.share.reading import FoundRecords
from penstock.runtime.share.settings import ShareGroupSettings
from penstock.wire.apis import ApiKey
from penstock.wire.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

# A partition is not read further ahead than this; a member seldom takes more records than fit.
PARTITION_BYTES_MAX = 1024 * 1024
STRICT = 1


class ShareFetchRow(NamedTuple):
    """What there is to say of one partition: an error, or records."""

    error: ApiError = NO_ERROR
    delivery: AcquiredBatch = AcquiredBatch([], [])


@broker_api(
    ApiKey.SHARE_FETCH,
    versions={
        1: "the first version still served: a maximum of records, and a batch size (KIP-932)",
        2: "a strict limit of records as an option (KIP-1206); locks can be renewed (KIP-1222)",
    },
)
async def share_fetch(
    services: BrokerServices, request: ShareFetchRequest, context: RequestContext
) -> ShareFetchResponse:
    shares = services.shares
    try:
        group, member = check_share_request(services, request, context)
        _check(request)
        session = shares.sessions.fetch(
            group,
            member,
            request.share_session_epoch,
            _places(request),
            _forgotten(request),
            session_owner(services, context),
        )
    except ApiError as error:
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            # A client over the session limit waits as if there were nothing to read, and so does not retry at once.
            await asyncio.sleep(max(0, request.max_wait_ms) / 1000)
        return ShareFetchResponse(error_code=error.code, error_message=error.message)
    if request.share_session_epoch == INITIAL_EPOCH:
        _end_with_connection(services, session, context.client)
    acknowledgements = [one for one in _acknowledgements(request) if one.batches]
    outcomes = await acknowledge(services, acknowledgements, session, context, is_renewal=request.is_renew_ack)
    rows: Mapping[TopicIdPartition, ShareFetchRow] = {}
    if request.share_session_epoch == FINAL_EPOCH:
        await shares.end_session(session)
    elif request.max_records > 0:
        rows = await ShareFetch(services, session, request, context).rows()
    lock_ms = shares.settings_of(group).partition.lock_ms
    return await _respond(services, rows, outcomes, context.client.listener_name, lock_ms)


def _end_with_connection(services: BrokerServices, session: ShareSession, client: Client) -> None:
    purpose, end = f"share {session.group} {session.member}", partial(services.shares.session_closed, session)
    session.on_ended = partial(client.forget_when_closed, purpose, end)
    client.when_closed(purpose, end)


async def _respond(
    services: BrokerServices,
    rows: Mapping[TopicIdPartition, ShareFetchRow],
    outcomes: Mapping[TopicIdPartition, ApiError],
    listener_name: str,
    lock_ms: int,
) -> ShareFetchResponse:
    hints = LeaderHints(services.partitions)
    topics: dict[Uuid, list[PartitionData]] = {}
    async for place in in_turns(dict.fromkeys((*rows, *outcomes))):
        error, delivery = rows.get(place, ShareFetchRow())
        outcome = outcomes.get(place, NO_ERROR)
        leader = hints.leader(error.code or outcome.code, "", *place, by_id=True)
        data = PartitionData(
            place.partition,
            error.code,
            message_of(error),
            outcome.code,
            message_of(outcome),
            LeaderIdAndEpoch(*leader),
            delivery.records,
            [AcquiredRecords(*one) for one in delivery.acquired],
        )
        topics.setdefault(place.topic_id, []).append(data)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=[ShareFetchableTopicResponse(topic_id, found) for topic_id, found in topics.items()],
        node_endpoints=hints.endpoints(listener_name, NodeEndpoint),
    )


class ShareFetch:
    """One fetch: looks at its partitions until there is enough, or its time is up."""

    def __init__(
        self,
        services: BrokerServices,
        session: ShareSession,
        request: ShareFetchRequest,
        context: RequestContext,
        offset_reset: OffsetReset | None = None,
    ) -> None:
        """`offset_reset` is where share-partitions start that never did, and whose group does not say.

        A request for no records waits until there are some, and takes none.
        """
        self._services = services
        self._shares = services.shares
        self._session = session
        self._request = request
        self._context = context
        self._offset_reset = offset_reset
        self._bytes_max = min(request.max_bytes, services.settings.node.fetch_max_bytes)
        self._loading: dict[TopicIdPartition, asyncio.Future[LedSharePartition]] = {}

    async def rows(self) -> Mapping[TopicIdPartition, ShareFetchRow]:
        """Partitions with records or an error."""
        deadline_ms = self._services.env.monotonic_ms() + max(0, self._request.max_wait_ms)
        while True:
            settings = self._shares.settings_of(self._session.group)
            led, errors = await self._find()
            found = self._look(led, settings, errors)
            size = sum(len(one.batches.data) for one in found.values())
            left_ms = deadline_ms - self._services.env.monotonic_ms()
            is_last = bool(errors) or left_ms <= 0
            if found and not self._request.max_records:
                return errors | {place: ShareFetchRow() for place in found}
            if found and (is_last or size >= self._request.min_bytes):
                rows = self._acquire(led, found, is_strict=settings.is_strict)
                if rows or is_last:
                    return errors | rows
            elif is_last:
                return errors
            await self._wait([*led.values()], left_ms)

    async def _find(self) -> tuple[dict[TopicIdPartition, LedSharePartition], dict[TopicIdPartition, ShareFetchRow]]:
        """The partitions that can be looked at, and the errors of others; some are still being loaded.

        Other clients get their turns after `ROWS_MAX` of them.
        """
        led: dict[TopicIdPartition, LedSharePartition] = {}
        errors: dict[TopicIdPartition, ShareFetchRow] = {}
        places = self._session.in_turn()
        async for place in in_turns(places):
            try:
                check_topic(self._services, place, self._context)
                loading = self._loading.pop(place, None)
                if loading is not None and loading.done():
                    # Raises what went wrong.
                    loading.result()
                found = self._shares.get(self._session.group, place, self._offset_reset)
                if isinstance(found, LedSharePartition):
                    self._shares.check_surely_led(found)
            except ApiError as error:
                errors[place] = ShareFetchRow(error)
                continue
            if isinstance(found, LedSharePartition):
                led[place] = found
            else:
                self._loading[place] = found
        if len(places) >= ROWS_MAX:
            for place in [place for place, one in led.items() if one.is_over]:
                del led[place]
                why = "this broker led the partition until just now"
                errors[place] = ShareFetchRow(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, why))
        return led, errors

    def _look(
        self,
        led: Mapping[TopicIdPartition, LedSharePartition],
        settings: ShareGroupSettings,
        errors: dict[TopicIdPartition, ShareFetchRow],
    ) -> dict[TopicIdPartition, FoundRecords]:
        found: dict[TopicIdPartition, FoundRecords] = {}
        room = self._bytes_max
        for place, one in led.items():
            if room <= 0 and found:
                break
            try:
                read = one.find(min(room, PARTITION_BYTES_MAX), settings, minimum_one_batch=not found)
            except ApiError as error:
                errors[place] = ShareFetchRow(error)
                continue
            if read is not None:
                found[place] = read
                room -= len(read.batches.data)
        return found

    def _acquire(
        self,
        led: Mapping[TopicIdPartition, LedSharePartition],
        found: Mapping[TopicIdPartition, FoundRecords],
        *,
        is_strict: bool,
    ) -> dict[TopicIdPartition, ShareFetchRow]:
        rows: dict[TopicIdPartition, ShareFetchRow] = {}
        left = self._request.max_records
        for place, read in found.items():
            if left <= 0:
                break
            delivery = led[place].acquire(
                self._session.member,
                read,
                left,
                batch_size=self._request.batch_size,
                is_strict=is_strict or self._request.share_acquire_mode == STRICT,
            )
            if delivery.acquired:
                rows[place] = ShareFetchRow(delivery=delivery)
                left -= sum(one.last - one.first + 1 for one in delivery.acquired)
        return rows

    async def _wait(self, led: Sequence[LedSharePartition], wait_ms: int) -> None:
        """Until there may be something to say, or the time is up."""
        loop = asyncio.get_running_loop()
        loading = [*self._loading.values()]
        woken: asyncio.Future[None] = loop.create_future()
        is_over = False

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        def end(_: object = None) -> None:
            nonlocal is_over
            is_over = True
            wake()

        def grown(size_bytes: int) -> None:
            if size_bytes == EVERYTHING:
                end()
            else:
                wake()

        timer = loop.call_later(wait_ms / 1000, end)
        for one in led:
            one.listen(wake)
            one.partition.listen(grown)
        for future in loading:
            future.add_done_callback(end)
        try:
            while True:
                await woken
                if is_over or any(one.may_have_records for one in led):
                    return
                # Other members that waited have taken what there was.
                woken = loop.create_future()
        finally:
            timer.cancel()
            for one in led:
                one.unlisten(wake)
                one.partition.unlisten(grown)
            for future in loading:
                future.remove_done_callback(end)


def _check(request: ShareFetchRequest) -> None:
    if request.is_renew_ack and any((request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a request that renews locks fetches nothing: its limits must be 0")
    if request.share_session_epoch == INITIAL_EPOCH and any(one.batches for one in _acknowledgements(request)):
        raise ApiError(ErrorCode.INVALID_REQUEST, "the first request of a session acknowledges nothing")


def _acknowledgements(request: ShareFetchRequest) -> Iterator[PartitionAcknowledgements]:
    for topic in request.topics:
        for row in topic.partitions:
            yield PartitionAcknowledgements(
                TopicIdPartition(topic.topic_id, row.partition_index), row.acknowledgement_batches
            )


def _places(request: ShareFetchRequest) -> list[TopicIdPartition]:
    return [one.place for one in _acknowledgements(request)]


def _forgotten(request: ShareFetchRequest) -> list[TopicIdPartition]:
    return [
        TopicIdPartition(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]
