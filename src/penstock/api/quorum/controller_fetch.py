"""Versions 4-18. KIP-595: voters and observers follow the metadata log by fetching it from its leader."""

from __future__ import annotations

import asyncio

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.model.access import Operation
from penstock.wire.apis import ApiKey
from penstock.wire.messages.fetch import FetchRequest, FetchResponse


@controller_api(
    ApiKey.FETCH,
    versions={
        4: "the first version still served; refused like all before 12, which lack fetched epochs",
        5: "log start offsets in request and response (KIP-107)",
        6: "the same fields; KAFKA_STORAGE_ERROR becomes a possible error (KIP-112)",
        7: "fetch session fields, which the metadata log does not use (KIP-227)",
        8: "the same fields; brokers throttle after the response (KIP-219)",
        9: "the leader epoch that the follower knows (KIP-320)",
        10: "the same fields; zstd is permitted for batches (KIP-110)",
        11: "the fetcher's rack and a preferred replica, both unused for the metadata log (KIP-392)",
        12: "flexible versions (KIP-482); cluster id, fetched epoch, leader and snapshot id (KIP-595)",
        13: "the metadata topic's id instead of its name (KIP-516)",
        14: "the same fields; an error for tiered storage that the metadata log does not use (KIP-405)",
        15: "the replica id moves into a struct with the replica's epoch (KIP-903)",
        16: "the response can tell the leader's address (KIP-951)",
        17: "the directory id of the voter or observer in the request (KIP-853)",
        18: "the high watermark that the follower knows in the request (KIP-1166)",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
def controller_fetch(
    services: ControllerServices, request: FetchRequest, context: RequestContext
) -> FetchResponse | asyncio.Future[FetchResponse]:
    return services.raft.requests.fetch(request, context.client.listener_name)
