"""What the requests that the quorum's nodes send each other have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, ControllerServices
from penstock.model.access import Operation
from penstock.runtime.raft.requests import RaftRequests
from penstock.wire.apis import ApiKey


def peer_api(
    key: ApiKey, versions: tuple[int, int], answer: Callable[[RaftRequests, Any, str], Any], response: type[Any]
) -> Api:
    """An API that needs CLUSTER_ACTION; `answer` also gets the name of the listener that the request came through."""

    def make(services: ControllerServices) -> Handler:
        def handle(request: Any, context: RequestContext) -> Any:
            return answer(services.raft.requests, request, context.client.listener_name)

        return handle

    return Api(key, versions, on_controller=guarded(Operation.CLUSTER_ACTION, make, response))
