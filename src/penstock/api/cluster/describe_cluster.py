"""Versions 0-2. KIP-700 cluster description, KIP-919 endpoint types, KIP-1073 fenced brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.api.access import NOT_ASKED, guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.core.metadata.image import Image
from penstock.model.access import Operation
from penstock.model.errors import ErrorCode
from penstock.runtime.raft.driver import RaftDriver
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

API = Api(
    ApiKey.DESCRIBE_CLUSTER,
    (0, 2),
    on_broker=lambda services: make_describe_cluster(
        services.image, services.cluster_id, services.controller_id, services.access
    ),
    on_controller=lambda services: guarded(
        services.access,
        # Unlike brokers, controllers are only shown to clients that may change them.
        Operation.ALTER,
        make_describe_controllers(
            services.image,
            lambda: services.raft.leader_id,
            lambda: voter_addresses(services.raft),
            services.cluster_id,
            services.access,
        ),
        DescribeClusterResponse,
    ),
)

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2


def make_describe_cluster(
    image: Image, cluster_id: str, controller_id: Callable[[], int], access: AccessControl
) -> Handler:
    """The handler."""

    def describe_cluster(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        if request.endpoint_type != BROKER_ENDPOINTS:
            return DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                error_message="this listener serves brokers' clients; ask a controller listener about controllers",
                endpoint_type=BROKER_ENDPOINTS,
            )
        brokers = []
        for broker in image.brokers.values():
            endpoint = broker.endpoint(context.client.listener_name)
            if endpoint is not None and (request.include_fenced_brokers or not broker.fenced):
                brokers.append(
                    DescribeClusterBroker(broker.broker_id, *endpoint, broker.registration.rack, broker.fenced)
                )
        return DescribeClusterResponse(
            error_message=None,
            cluster_id=cluster_id,
            controller_id=controller_id(),
            brokers=brokers,
            cluster_authorized_operations=(
                access.operations_on_cluster(context.client)
                if request.include_cluster_authorized_operations
                else NOT_ASKED
            ),
        )

    return describe_cluster


def voter_addresses(raft: RaftDriver) -> dict[int, tuple[str, int]]:
    """The known addresses of the voters."""
    found = ((voter, raft.addresses.of(voter)) for voter in raft.quorum.voters.ids)
    return {voter: address for voter, address in found if address is not None}


def make_describe_controllers(
    image: Image,
    leader_id: Callable[[], int],
    addresses: Callable[[], Mapping[int, tuple[str, int]]],
    cluster_id: str,
    access: AccessControl,
) -> Handler:
    """The handler of the controller listener, which describes controllers instead of brokers.

    `addresses` are those of the voters; a controller's own registration takes precedence.
    """

    def describe_controllers(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        if request.endpoint_type != CONTROLLER_ENDPOINTS:
            return DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                error_message="this is a controller; ask a broker's listener about brokers",
                endpoint_type=CONTROLLER_ENDPOINTS,
            )
        known = dict(addresses())
        for controller in image.controllers.values():
            for endpoint in controller.end_points:
                if endpoint.name == context.client.listener_name:
                    known[controller.controller_id] = (endpoint.host, endpoint.port)
        return DescribeClusterResponse(
            error_message=None,
            endpoint_type=CONTROLLER_ENDPOINTS,
            cluster_id=cluster_id,
            controller_id=leader_id(),
            brokers=[DescribeClusterBroker(node_id, host, port) for node_id, (host, port) in sorted(known.items())],
            cluster_authorized_operations=(
                access.operations_on_cluster(context.client)
                if request.include_cluster_authorized_operations
                else NOT_ASKED
            ),
        )

    return describe_controllers
