"""Checks of access lists for handlers, and the errors of denied requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from penstock.api.context import Handler, RequestContext
from penstock.api.pieces import in_turns
from penstock.model.access import CLUSTER_NAME, Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.security.access_control import AccessControl

T = TypeVar("T")

# "Authorized operations" (KIP-430) of a client that did not request them.
NOT_ASKED = -(2**31)

_REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def check(access: AccessControl, context: RequestContext, operation: Operation, kind: ResourceType, name: str) -> None:
    """Raises the kind's AUTHORIZATION_FAILED unless the client may do this with the resource."""
    if not access.allows(context.client, operation, kind, name):
        raise refusal(context, operation, kind, name)


def check_cluster(access: AccessControl, context: RequestContext, operation: Operation) -> None:
    """Raises CLUSTER_AUTHORIZATION_FAILED unless the client may do this with the cluster."""
    check(access, context, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def check_access_lists(access: AccessControl, context: RequestContext, operation: Operation) -> None:
    """Raises SECURITY_DISABLED without an authorizer, otherwise as `check_cluster`."""
    if not access.is_on:
        # In Kafka's own words, which people search for.
        raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    check_cluster(access, context, operation)


def refusal(context: RequestContext, operation: Operation, kind: ResourceType, name: str) -> ApiError:
    """The error for a client without a right."""
    what = "the cluster" if kind is ResourceType.CLUSTER else f"{kind.name.lower().replace('_', ' ')} {name}"
    return ApiError(_REFUSALS[kind], f"{context.client.principal} needs the right {operation.name} on {what}")


def requiring(operation: Operation, access: AccessControl, handle: Handler, response: type[Any]) -> Handler:
    """The handler for clients that may do `operation` on the cluster; other clients get the error alone."""
    has_message = "error_message" in response._fields

    def check_then_handle(request: Any, context: RequestContext) -> object:
        try:
            check_cluster(access, context, operation)
        except ApiError as error:
            refused = response(error_code=error.code)
            return refused._replace(error_message=error.message) if has_message else refused
        return handle(request, context)

    return check_then_handle


async def check_all(
    access: AccessControl, context: RequestContext, operation: Operation, kind: ResourceType, names: Collection[str]
) -> None:
    """As `check`, for many resources; other clients get their turns meanwhile."""
    async for name in in_turns(names if access.is_on else ()):
        check(access, context, operation, kind, name)


async def split_by_right(
    access: AccessControl,
    context: RequestContext,
    operation: Operation,
    kind: ResourceType,
    rows: Iterable[T],
    name_of: Callable[[T], str],
) -> tuple[list[T], list[T]]:
    """The rows of a request on whose resources the client may do this, and the others.

    Other clients get their turns meanwhile.
    """
    if not access.is_on:
        return [*rows], []
    allowed: list[T] = []
    refused: list[T] = []
    async for row in in_turns(rows):
        (allowed if access.allows(context.client, operation, kind, name_of(row)) else refused).append(row)
    return allowed, refused
