"""Version 0. Penstock's own: records of a share group, for a member without a share session.

Not advertised: Kafka's clients have no use for it. What is taken is held by the member until its lock ends, whatever
becomes of the connection, and settled with SettleShareRecord, by any client that may read for the group. With
`max_records` 0 it waits until there are records, names their partitions, and takes none. It needs the rights of
ShareFetch.
"""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.share.share_fetch import STRICT, ShareFetch, ShareFetchRow
from penstock.api.share.share_requests import check_share_request, message_of, session_owner
from penstock.config.offset_reset import OffsetReset, parse_offset_reset
from penstock.core.share.sessions import ShareSession, TopicIdPartition
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.share_fetch import ShareFetchRequest
from penstock.wire.messages.take_share_records import (
    TakenPartition,
    TakenRecords,
    TakeShareRecordsRequest,
    TakeShareRecordsResponse,
)


@broker_api(
    ApiKey.TAKE_SHARE_RECORDS,
    versions={
        0: "Penstock's own: records of a share group, without a share session",
    },
)
async def take_share_records(
    services: BrokerServices, request: TakeShareRecordsRequest, context: RequestContext
) -> TakeShareRecordsResponse:
    try:
        group, member = check_share_request(services, request, context)
        reset = _offset_reset(request)
        services.shares.taker_seen(group, member, session_owner(services, context))
    except ApiError as error:
        return TakeShareRecordsResponse(error_code=error.code, error_message=error.message)
    session = ShareSession(group, member, [TopicIdPartition(request.topic_id, index) for index in request.partitions])
    fetch = ShareFetchRequest(
        max_wait_ms=request.max_wait_ms,
        min_bytes=1,
        max_bytes=request.max_bytes,
        max_records=max(0, request.max_records),
        share_acquire_mode=STRICT,
    )
    rows = await ShareFetch(services, session, fetch, context, reset).rows()
    return TakeShareRecordsResponse(
        lock_ms=services.shares.settings_of(group).partition.lock_ms,
        partitions=[_taken(place, row) for place, row in rows.items()],
    )


def _offset_reset(request: TakeShareRecordsRequest) -> OffsetReset | None:
    try:
        return None if request.offset_reset is None else parse_offset_reset(request.offset_reset)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _taken(place: TopicIdPartition, row: ShareFetchRow) -> TakenPartition:
    return TakenPartition(
        place.partition,
        row.error.code,
        message_of(row.error),
        row.delivery.records,
        [TakenRecords(*one) for one in row.delivery.acquired],
        incarnation=row.delivery.incarnation,
    )
