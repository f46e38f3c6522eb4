"""Version 0. KIP-858: brokers say in which log directory each replica lies."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, ControllerServices
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse


def make_assign_replicas_to_dirs(services: ControllerServices) -> Handler:
    """The handler."""
    controller = services.controller

    async def assign_replicas_to_dirs(
        request: AssignReplicasToDirsRequest, context: RequestContext
    ) -> AssignReplicasToDirsResponse:
        try:
            return AssignReplicasToDirsResponse(directories=await controller.assign_replicas_to_directories(request))
        except ApiError as error:
            return AssignReplicasToDirsResponse(error_code=error.code)

    return assign_replicas_to_dirs


API = Api(
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    (0, 0),
    on_controller=guarded(Operation.CLUSTER_ACTION, make_assign_replicas_to_dirs, AssignReplicasToDirsResponse),
)
