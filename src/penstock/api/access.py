"""What handlers ask of access lists, and what they answer whoever is refused."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.security.access_control import AccessControl


def check_cluster(access: AccessControl, context: RequestContext, operation: Operation) -> None:
    """Raises CLUSTER_AUTHORIZATION_FAILED unless the client may do this with the cluster."""
    if not access.allows_on_cluster(context.client, operation):
        raise ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{context.client.principal} needs the right {operation.name} on the cluster",
        )
