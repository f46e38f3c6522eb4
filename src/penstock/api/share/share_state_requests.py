"""What the share coordinator's handlers have in common: the right, the answer for each partition, and its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.core.share.state import Answer, ShareKey
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID, Uuid
from penstock.runtime.security.access_control import AccessControl


async def answer_each(
    request: Any,
    context: RequestContext,
    access: AccessControl,
    ask: Callable[[ShareKey, Any], Awaitable[Answer]],
) -> list[tuple[Uuid, list[tuple[int, Answer]]]]:
    """Ask for every partition of a request, all at once; the answers come by topic and number.

    Only brokers ask: it takes CLUSTER_ACTION.
    """

    async def one(topic_id: Uuid, row: Any) -> Answer:
        try:
            check_cluster(access, context, Operation.CLUSTER_ACTION)
            if not request.group_id or topic_id == ZERO_UUID or row.partition < 0:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a group, a topic id and a partition must be given")
            return await ask(ShareKey(request.group_id, topic_id, row.partition), row)
        except ApiError as error:
            return Answer(error.code, error.message)

    wanted = [(topic.topic_id, row) for topic in request.topics for row in topic.partitions]
    # A leader mostly asks for one partition, which needs no task.
    found = [await one(*wanted[0])] if len(wanted) == 1 else await asyncio.gather(*(one(*each) for each in wanted))
    answers = iter(found)
    return [(topic.topic_id, [(row.partition, next(answers)) for row in topic.partitions]) for topic in request.topics]
