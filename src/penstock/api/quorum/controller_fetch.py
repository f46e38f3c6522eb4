"""Versions 4-18. KIP-595: voters and observers follow the metadata log by fetching it from its leader."""

from __future__ import annotations

import asyncio

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.model.access import Operation
from penstock.runtime.raft.driver import RaftDriver
from penstock.wire.apis import ApiKey
from penstock.wire.messages.fetch import FetchRequest, FetchResponse

API = Api(
    ApiKey.FETCH,
    (4, 18),
    on_controller=lambda services: guarded(
        services.access, Operation.CLUSTER_ACTION, make_controller_fetch(services.raft), FetchResponse
    ),
)


def make_controller_fetch(raft: RaftDriver) -> Handler:
    """The handler."""

    def controller_fetch(
        request: FetchRequest, context: RequestContext
    ) -> FetchResponse | asyncio.Future[FetchResponse]:
        return raft.requests.fetch(request, context.client.listener_name)

    return controller_fetch
