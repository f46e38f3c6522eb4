"""Version 0. KIP-858: brokers say in which log directory each replica lies."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.model.errors import ApiError
from penstock.runtime.controller.controller import Controller
from penstock.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse


def make_assign_replicas_to_dirs(controller: Controller) -> Handler:
    """The handler."""

    async def assign_replicas_to_dirs(
        request: AssignReplicasToDirsRequest, context: RequestContext
    ) -> AssignReplicasToDirsResponse:
        try:
            return AssignReplicasToDirsResponse(directories=await controller.assign_replicas_to_directories(request))
        except ApiError as error:
            return AssignReplicasToDirsResponse(error_code=error.code)

    return assign_replicas_to_dirs
