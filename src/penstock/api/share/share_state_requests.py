"""What the share coordinator's handlers have in common: the right, the answer for each partition, and its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices
from penstock.api.pieces import ROWS_MAX
from penstock.core.share.state import Answer, ShareKey, ShareState
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID, Uuid

Result = TypeVar("Result")

# Asks the coordinator about one share-partition, with its row of the request.
Ask = Callable[[ShareKey, Any], Awaitable[Answer]]


def result_of(
    result: Callable[..., Result],
    partition: int,
    answer: Answer,
    fields_of: Callable[[ShareState], tuple[object, ...]] = lambda _: (),
) -> Result:
    """A partition's row of the response: the error, or what `fields_of` finds in the state."""
    if answer.error is not ErrorCode.NONE:
        return result(partition, answer.error, answer.message)
    return result(partition, 0, None, *fields_of(answer.state))


async def answer_each(
    services: BrokerServices, request: Any, context: RequestContext, ask: Ask
) -> list[tuple[Uuid, list[tuple[int, Answer]]]]:
    """Ask for every partition of a request, many at a time; the answers come by topic and number.

    Only brokers ask: it takes CLUSTER_ACTION.
    """

    async def one(topic_id: Uuid, row: Any) -> Answer:
        try:
            if not request.group_id or topic_id == ZERO_UUID or row.partition < 0:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a group, a topic id and a partition must be given")
            return await ask(ShareKey(request.group_id, topic_id, row.partition), row)
        except ApiError as error:
            return Answer(error.code, error.message)

    wanted = [(topic.topic_id, row) for topic in request.topics for row in topic.partitions]
    found: list[Answer]
    try:
        check_cluster(services.access, context, Operation.CLUSTER_ACTION)
    except ApiError as error:
        found = [Answer(error.code, error.message)] * len(wanted)
    else:
        if len(wanted) == 1:
            # A leader mostly requests one partition, which needs no task.
            found = [await one(*wanted[0])]
        else:
            found = []
            for start in range(0, len(wanted), ROWS_MAX):
                found += await asyncio.gather(*(one(*each) for each in wanted[start : start + ROWS_MAX]))
    answers = iter(found)
    return [(topic.topic_id, [(row.partition, next(answers)) for row in topic.partitions]) for topic in request.topics]
