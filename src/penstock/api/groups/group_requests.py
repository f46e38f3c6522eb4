"""What the handlers of groups share: the caller, and the response when the coordinator cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from penstock.api.access import check_all
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices
from penstock.core.group.contract import Caller, Effects, Token
from penstock.core.group.shard import GroupShard
from penstock.core.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION, level_of
from penstock.core.metadata.image import Image
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.groups import Groups, Question
from penstock.runtime.security.access_control import OPEN, AccessControl
from penstock.wire.messages import (
    consumer_group_describe,
    describe_groups,
    share_group_describe,
    streams_group_describe,
)


def caller_of(context: RequestContext, access: AccessControl = OPEN, group: str | None = None) -> Caller:
    """The caller, as groups describe their members; `access` decides which topics it may know of.

    With `group`, which it may use, limits hold for all groups that it may use by the same right.
    """
    client = context.client
    may_describe = widest_prefix = None
    if access.is_on and group is not None:

        def widest_prefix() -> str | None:
            return access.widest_prefix(client, Operation.READ, ResourceType.GROUP, group)

    if access.is_on:

        def may_describe(topic: str) -> bool:
            return access.allows(client, Operation.DESCRIBE, ResourceType.TOPIC, topic, quiet=True)

    return Caller(context.client_id or "", f"/{client.address[0]}", context.api_version, may_describe, widest_prefix)


def check_consumer_protocol(image: Image, groups: Groups) -> None:
    """Reject the consumer protocol if the cluster or this broker has it turned off."""
    _check_offered(groups, "consumer")
    if not level_of(image, GROUP_VERSION):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{GROUP_VERSION} is 0 in this cluster: raise it to 1 with kafka-features.sh, or use the classic protocol",
        )


def check_share_protocol(image: Image) -> None:
    """Reject requests about share groups if the cluster has them turned off."""
    if not level_of(image, SHARE_VERSION):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{SHARE_VERSION} is 0 in this cluster: raise it to 1 with kafka-features.sh to have share groups",
        )


def check_streams_protocol(image: Image, groups: Groups) -> None:
    """Reject requests about streams groups if the cluster or this broker has them turned off."""
    _check_offered(groups, "streams")
    if not level_of(image, STREAMS_VERSION):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{STREAMS_VERSION} is 0 in this cluster: raise it to 1 with kafka-features.sh to have streams groups",
        )


def _check_offered(groups: Groups, protocol: str) -> None:
    if protocol not in groups.protocols:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{protocol} is not among this broker's group.coordinator.rebalance.protocols: add it, or use the classic "
            "protocol",
        )


async def check_described_topics(access: AccessControl, context: RequestContext, topics: Collection[str]) -> None:
    """Raise TOPIC_AUTHORIZATION_FAILED if a described group has topics that the client may not describe."""
    try:
        await check_all(access, context, Operation.DESCRIBE, ResourceType.TOPIC, topics)
    except ApiError as error:
        raise ApiError(
            error.code, "The group has described topic(s) that the client is not authorized to describe."
        ) from None


class DescribeRequest(Protocol):
    """A request to describe groups."""

    @property
    def group_ids(self) -> Sequence[str]: ...

    @property
    def include_authorized_operations(self) -> bool: ...


class OfMember(Protocol):
    """A request of a member of a group."""

    @property
    def group_id(self) -> str: ...


MemberRequest = TypeVar("MemberRequest", bound=OfMember)
MemberResponse = TypeVar("MemberResponse")
Described = TypeVar(
    "Described",
    describe_groups.DescribedGroup,
    consumer_group_describe.DescribedGroup,
    share_group_describe.DescribedGroup,
    streams_group_describe.DescribedGroup,
)


def with_operations(group: Described, access: AccessControl, context: RequestContext) -> Described:
    """A described group with the operations that the client may do on it (KIP-430), unless it has an error."""
    if group.error_code:
        return group
    allowed = access.operations(context.client, ResourceType.GROUP, group.group_id)
    return group._replace(authorized_operations=allowed)


async def describe_each(
    services: BrokerServices,
    request: DescribeRequest,
    context: RequestContext,
    describe: Callable[[BrokerServices, str, RequestContext], Awaitable[Described]],
    described: type[Described],
) -> list[Described]:
    """The groups of a request, described one after the other; where `describe` raises, with its error."""
    found = []
    for group in request.group_ids:
        try:
            found.append(await describe(services, group, context))
        except ApiError as error:
            found.append(described(error.code, error.message, group))
    if request.include_authorized_operations:
        found = [with_operations(group, services.access, context) for group in found]
    return found


def ask_as_member(
    services: BrokerServices,
    request: MemberRequest,
    context: RequestContext,
    ask: Callable[[GroupShard, MemberRequest, Caller, Token, int], Effects],
    response: Callable[..., MemberResponse],
) -> asyncio.Future[MemberResponse]:
    """Call the group's shard for a member of a classic group; a refusal has only the error."""
    if not services.access.allows(context.client, Operation.READ, ResourceType.GROUP, request.group_id):
        return answered(response(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    caller = caller_of(context)
    return answer_or(
        services.groups,
        request.group_id,
        lambda shard, token, now_ms: ask(shard, request, caller, token, now_ms),
        lambda code: response(error_code=code),
    )


def answered(response: Any) -> asyncio.Future[Any]:
    """A response that is known already, as a future."""
    reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    reply.set_result(response)
    return reply


def answer_or(
    groups: Groups, group: str, question: Question, refuse: Callable[[ErrorCode], object], *, gather: bool = False
) -> asyncio.Future[Any]:
    """Call a group's shard; if it cannot be called, or fails before it answers, `refuse` makes the response."""
    try:
        if not group:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
        answer = groups.ask(group, question, gather=gather)
    except ApiError as error:
        return answered(refuse(error.code))
    reply: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def finish(done: asyncio.Future[object]) -> None:
        if reply.done() or done.cancelled():
            return
        error = done.exception()
        if error is None:
            reply.set_result(done.result())
        elif isinstance(error, ApiError):
            reply.set_result(refuse(error.code))
        else:
            reply.set_exception(error)

    if answer.done():
        finish(answer)
    else:
        answer.add_done_callback(finish)
    return reply
