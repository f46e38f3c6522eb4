"""Version 1. KIP-932: join, stay in and leave a share group."""

from __future__ import annotations

from penstock.api.access import check, check_all
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import caller_of, check_share_protocol
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

# The length of a UUID as text, which clients use.
MEMBER_ID_LENGTH_MAX = 36


@broker_api(
    ApiKey.SHARE_GROUP_HEARTBEAT,
    versions={
        1: "the first version still served (KIP-932)",
    },
)
async def share_group_heartbeat(
    services: BrokerServices, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse:
    try:
        check_share_protocol(services.image)
        check(services.access, context, Operation.READ, ResourceType.GROUP, request.group_id)
        if not 0 < len(request.member_id) <= MEMBER_ID_LENGTH_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
        names = request.subscribed_topic_names or ()
        await check_all(services.access, context, Operation.DESCRIBE, ResourceType.TOPIC, names)
        return await services.share_groups.heartbeat(request, caller_of(context, services.access, request.group_id))
    except ApiError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
