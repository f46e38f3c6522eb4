"""Versions 0-2. KIP-595 the quorum's state, KIP-836 times of voters and observers, KIP-853 directories and nodes."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.model.access import Operation
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse


@forwarded_api(
    ApiKey.DESCRIBE_QUORUM,
    versions={
        0: "the first version (KIP-595)",
        1: "last fetch and last caught-up times of replicas in the response (KIP-836)",
        2: "error messages, directory ids and the nodes' addresses in the response (KIP-853)",
    },
    cluster_right=Operation.DESCRIBE,
)
def describe_quorum(
    services: SharedServices, request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse:
    return services.raft.description.describe(request, context.api_version)
