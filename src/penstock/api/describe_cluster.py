"""Versions 0-2. KIP-700 cluster description, KIP-919 endpoint types, KIP-1073 fenced brokers."""

from __future__ import annotations

from collections.abc import Callable

from penstock.api.context import Handler, RequestContext
from penstock.api.operations import ALL_ON_CLUSTER, NOT_ASKED
from penstock.core.metadata.image import Image
from penstock.model.errors import ErrorCode
from penstock.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKER_ENDPOINTS = 1


def make_describe_cluster(image: Image, cluster_id: str, controller_id: Callable[[], int]) -> Handler:
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
                ALL_ON_CLUSTER if request.include_cluster_authorized_operations else NOT_ASKED
            ),
        )

    return describe_cluster
