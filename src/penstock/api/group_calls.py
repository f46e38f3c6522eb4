"""What the handlers of groups share: who calls, and what an unreachable coordinator answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.api.context import RequestContext
from penstock.core.group.contract import Caller
from penstock.core.metadata.features import GROUP_VERSION, level_of
from penstock.core.metadata.image import Image
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.groups import Groups, Question
from penstock.runtime.security.access_control import OPEN, AccessControl


def caller_of(context: RequestContext, access: AccessControl = OPEN) -> Caller:
    """Who calls, as groups describe their members; `access` says which topics it may know of."""
    client = context.client
    may_describe = None
    if access.is_on:

        def may_describe(topic: str) -> bool:
            return access.allows(client, Operation.DESCRIBE, ResourceType.TOPIC, topic, quiet=True)

    return Caller(context.client_id or "", f"/{client.address[0]}", context.api_version, may_describe)


def check_consumer_protocol(image: Image) -> None:
    """Refuse the consumer protocol where the cluster has it turned off."""
    if not level_of(image, GROUP_VERSION):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{GROUP_VERSION} is 0 in this cluster: raise it to 1 with kafka-features.sh, or use the classic protocol",
        )


def answered(response: Any) -> asyncio.Future[Any]:
    """A response that nobody has to be asked for."""
    reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    reply.set_result(response)
    return reply


def answer_or(
    groups: Groups, group: str, question: Question, refuse: Callable[[ErrorCode], Any], *, gather: bool = False
) -> asyncio.Future[Any]:
    """Ask a group's shard; where it cannot be asked, or fails before it answers, `refuse` makes the response."""
    try:
        if not group:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
        answer = groups.ask(group, question, gather=gather)
    except ApiError as error:
        return answered(refuse(error.code))
    reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def finish(done: asyncio.Future[Any]) -> None:
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
