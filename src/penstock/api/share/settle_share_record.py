"""Version 0. Penstock's own: what becomes of one record that was taken with TakeShareRecords.

Not advertised: Kafka's clients have no use for it. It names the delivery that it is about by member, count, and the
incarnation of the leader that made it, and may come over any connection. If the record is no longer with that member
since that delivery, the answer is INVALID_RECORD_STATE, and nothing changes. It needs the rights of ShareAcknowledge.
"""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.share.share_requests import ShareRequests
from penstock.core.share.acknowledgements import AckType
from penstock.core.share.sessions import Place
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.settle_share_record import SettleShareRecordRequest, SettleShareRecordResponse

KINDS = frozenset((AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.RENEW))


def make_settle_share_record(services: BrokerServices) -> Handler:
    """The handler."""
    requests = ShareRequests(services)
    shares = requests.shares

    async def settle_share_record(
        request: SettleShareRecordRequest, context: RequestContext
    ) -> SettleShareRecordResponse:
        try:
            group, member = requests.check(request, context)
            place = Place(request.topic_id, request.partition)
            requests.check_topic(place, context)
            if request.kind not in KINDS:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{request.kind} is no way to settle a record")
            shares.sweep_later()
            led = await shares.loaded(group, place)
            settings = shares.settings_of(group)
            kind = AckType(request.kind)
            await led.settle(
                member, request.offset, request.delivery_count, kind, settings, incarnation=request.incarnation
            )
        except ApiError as error:
            return SettleShareRecordResponse(error_code=error.code, error_message=error.message)
        return SettleShareRecordResponse(lock_ms=settings.partition.lock_ms)

    return settle_share_record


API = Api(ApiKey.SETTLE_SHARE_RECORD, (0, 0), on_broker=make_settle_share_record)
