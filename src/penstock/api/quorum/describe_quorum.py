"""Versions 0-2. KIP-595 the quorum's state, KIP-836 times of voters and observers, KIP-853 directories and nodes."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.model.access import Operation
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse


def make_describe_quorum(services: SharedServices) -> Handler:
    """The handler."""

    def describe_quorum(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
        return services.raft.description.describe(request, context.api_version)

    return describe_quorum


API = shared_api(
    ApiKey.DESCRIBE_QUORUM,
    (0, 2),
    guarded(Operation.DESCRIBE, make_describe_quorum, DescribeQuorumResponse),
    is_forwarded=True,
)
