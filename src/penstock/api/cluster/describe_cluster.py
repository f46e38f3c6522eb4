"""Versions 0-2. KIP-700 cluster description, KIP-919 endpoint types, KIP-1073 fenced brokers."""

from __future__ import annotations

from penstock.api.access import NOT_ASKED
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, ControllerServices, broker_api, controller_api
from penstock.model.access import Operation
from penstock.model.errors import ErrorCode
from penstock.runtime.raft.driver import RaftDriver
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2
VERSIONS = {
    0: "the first version (KIP-700)",
    1: "endpoint types: brokers or controllers (KIP-919)",
    2: "fenced brokers, on request, and marked in the response (KIP-1073)",
}


@broker_api(ApiKey.DESCRIBE_CLUSTER, versions=VERSIONS)
def describe_cluster(
    services: BrokerServices, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this listener serves brokers' clients; ask a controller listener about controllers",
            endpoint_type=BROKER_ENDPOINTS,
        )
    brokers = []
    for broker in services.image.brokers.values():
        endpoint = broker.endpoint(context.client.listener_name)
        if endpoint is not None and (request.include_fenced_brokers or not broker.fenced):
            brokers.append(DescribeClusterBroker(broker.broker_id, *endpoint, broker.registration.rack, broker.fenced))
    return DescribeClusterResponse(
        error_message=None,
        cluster_id=services.cluster_id,
        controller_id=services.controller_id(),
        brokers=brokers,
        cluster_authorized_operations=(
            services.access.operations_on_cluster(context.client)
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    )


def voter_addresses(raft: RaftDriver) -> dict[int, tuple[str, int]]:
    """The known addresses of the voters."""
    found = ((voter, raft.addresses.of(voter)) for voter in raft.quorum.voters.ids)
    return {voter: address for voter, address in found if address is not None}


@controller_api(ApiKey.DESCRIBE_CLUSTER, versions=VERSIONS, cluster_right=Operation.ALTER)
def describe_controllers(
    services: ControllerServices, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    if request.endpoint_type != CONTROLLER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this is a controller; ask a broker's listener about brokers",
            endpoint_type=CONTROLLER_ENDPOINTS,
        )
    known = voter_addresses(services.raft)
    for controller in services.image.controllers.values():
        for endpoint in controller.end_points:
            if endpoint.name == context.client.listener_name:
                known[controller.controller_id] = (endpoint.host, endpoint.port)
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=CONTROLLER_ENDPOINTS,
        cluster_id=services.cluster_id,
        controller_id=services.raft.leader_id,
        brokers=[DescribeClusterBroker(node_id, host, port) for node_id, (host, port) in sorted(known.items())],
        cluster_authorized_operations=(
            services.access.operations_on_cluster(context.client)
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    )
