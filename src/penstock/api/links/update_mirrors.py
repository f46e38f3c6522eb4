"""Version 0. Penstock's own: brokers report a link's source to the active controller, and claim promotions."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.update_mirrors import UpdatedMirrorTopic, UpdateMirrorsRequest, UpdateMirrorsResponse


@controller_api(
    ApiKey.UPDATE_MIRRORS,
    versions={
        0: "Penstock's own: topics of a link's source, producer ids that came with them, and claims of promotions",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
async def update_mirrors(
    services: ControllerServices, request: UpdateMirrorsRequest, context: RequestContext
) -> UpdateMirrorsResponse:
    try:
        outcomes = await services.controller.links.update(request)
    except ApiError as error:
        return UpdateMirrorsResponse(error_code=error.code, error_message=error.message)
    rows = [UpdatedMirrorTopic(one.name, one.error, one.message) for one in outcomes]
    return UpdateMirrorsResponse(error_message=None, topics=rows)
