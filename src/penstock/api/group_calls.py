"""What the handlers of groups share: who calls, and what an unreachable coordinator answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.api.context import RequestContext
from penstock.core.group.contract import Caller
from penstock.core.metadata.features import GROUP_VERSION, level_of
from penstock.core.metadata.image import Image
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.groups import Groups, Question


def caller_of(context: RequestContext) -> Caller:
    """Who calls, as groups describe their members."""
    return Caller(context.client_id or "", f"/{context.client.address[0]}", context.api_version)


def check_consumer_protocol(image: Image) -> None:
    """Refuse the consumer protocol where the cluster has it turned off."""
    if not level_of(image, GROUP_VERSION):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{GROUP_VERSION} is 0 in this cluster: raise it to 1 with kafka-features.sh, or use the classic protocol",
        )


def answer_or(
    groups: Groups, group: str, question: Question, refuse: Callable[[ErrorCode], Any], *, gather: bool = False
) -> asyncio.Future[Any]:
    """Ask a group's shard; where it cannot be asked, or fails before it answers, `refuse` makes the response."""
    loop = asyncio.get_running_loop()
    reply: asyncio.Future[Any] = loop.create_future()
    try:
        if not group:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
        answer = groups.ask(group, question, gather=gather)
    except ApiError as error:
        reply.set_result(refuse(error.code))
        return reply

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
