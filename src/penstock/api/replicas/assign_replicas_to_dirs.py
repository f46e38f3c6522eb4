"""Version 0. KIP-858: brokers say in which log directory each replica lies."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse


@controller_api(
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    versions={
        0: "the first version (KIP-858)",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
async def assign_replicas_to_dirs(
    services: ControllerServices, request: AssignReplicasToDirsRequest, context: RequestContext
) -> AssignReplicasToDirsResponse:
    try:
        return AssignReplicasToDirsResponse(
            directories=await services.controller.assign_replicas_to_directories(request)
        )
    except ApiError as error:
        return AssignReplicasToDirsResponse(error_code=error.code)
