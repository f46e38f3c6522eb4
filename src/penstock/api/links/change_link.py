"""Version 0. Penstock's own: brokers have the active controller record a change of a cluster link."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.change_link import ChangeLinkRequest, ChangeLinkResponse


@controller_api(
    ApiKey.CHANGE_LINK,
    versions={
        0: "Penstock's own: a change of a cluster link, whose source a broker has looked at",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
async def change_link(
    services: ControllerServices, request: ChangeLinkRequest, context: RequestContext
) -> ChangeLinkResponse:
    try:
        topics = await services.controller.links.change(request)
    except ApiError as error:
        return ChangeLinkResponse(error_code=error.code, error_message=error.message)
    return ChangeLinkResponse(error_message=None, topics=topics)
