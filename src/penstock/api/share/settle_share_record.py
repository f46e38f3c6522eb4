"""Version 0. Penstock's own: what becomes of one record that was taken with TakeShareRecords.

Not advertised: Kafka's clients have no use for it. It names the delivery that it is about by member, count, and the
incarnation of the leader that made it, and may come over any connection. If the record is no longer with that member
since that delivery, the answer is INVALID_RECORD_STATE, and nothing changes. It needs the rights of ShareAcknowledge.
"""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.share.share_requests import check_share_request, check_topic
from penstock.core.share.acknowledgements import AckType
from penstock.core.share.sessions import TopicIdPartition
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.settle_share_record import SettleShareRecordRequest, SettleShareRecordResponse

KINDS = frozenset((AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.RENEW))


@broker_api(
    ApiKey.SETTLE_SHARE_RECORD,
    versions={
        0: "Penstock's own: the outcome of one record taken with TakeShareRecords",
    },
)
async def settle_share_record(
    services: BrokerServices, request: SettleShareRecordRequest, context: RequestContext
) -> SettleShareRecordResponse:
    try:
        group, member = check_share_request(services, request, context)
        place = TopicIdPartition(request.topic_id, request.partition)
        check_topic(services, place, context)
        if request.kind not in KINDS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{request.kind} is no way to settle a record")
        services.shares.sweep_later()
        led = await services.shares.loaded(group, place)
        settings = services.shares.settings_of(group)
        kind = AckType(request.kind)
        await led.settle(
            member, request.offset, request.delivery_count, kind, settings, incarnation=request.incarnation
        )
    except ApiError as error:
        return SettleShareRecordResponse(error_code=error.code, error_message=error.message)
    return SettleShareRecordResponse(lock_ms=settings.partition.lock_ms)
