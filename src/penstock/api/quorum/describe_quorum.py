"""Versions 0-2. KIP-595 the quorum's state, KIP-836 times of voters and observers, KIP-853 directories and nodes."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.model.access import Operation
from penstock.runtime.raft.driver import RaftDriver
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

API = shared_api(
    ApiKey.DESCRIBE_QUORUM,
    (0, 2),
    lambda services: guarded(
        services.access, Operation.DESCRIBE, make_describe_quorum(services.raft), DescribeQuorumResponse
    ),
    is_forwarded=True,
)


def make_describe_quorum(raft: RaftDriver) -> Handler:
    """The handler."""

    def describe_quorum(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
        return raft.description.describe(request, context.api_version)

    return describe_quorum
