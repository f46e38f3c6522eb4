"""Messages of the DescribeCluster API.

Generated from definitions/describe_cluster.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DescribeClusterRequest(NamedTuple):
    """Versions 0-2, flexible from 0."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False

    def response_class(self) -> type[DescribeClusterResponse]:
        return DescribeClusterResponse


class DescribeClusterBroker(NamedTuple):
    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False


class DescribeClusterResponse(NamedTuple):
    """Versions 0-2, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: Sequence[DescribeClusterBroker] = ()
    cluster_authorized_operations: int = -2147483648
