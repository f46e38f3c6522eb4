"""The topics of coordinators: clients neither write nor trim them, whatever rights they have.

A record that is written there is a group's offset, or a transaction's outcome. As in Kafka, a client that calls itself
`__admin_client` may write all the same, for repairs; here it takes the right to act as a broker.
"""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.core.metadata.topic_names import COORDINATED_TOPICS
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.security.access_control import AccessControl

REPAIRING_CLIENT = "__admin_client"


def check_append(topic: str, context: RequestContext, access: AccessControl) -> None:
    """Raises INVALID_TOPIC_EXCEPTION unless a client may append to this topic, which is one of them."""
    may_repair = access.allows_on_cluster(context.client, Operation.CLUSTER_ACTION, quiet=True)
    if context.client_id != REPAIRING_CLIENT or not may_repair:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")


def check_deletion(topic: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION if records of this topic may not be deleted."""
    if topic in COORDINATED_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
