"""What AlterShareGroupOffsets and DeleteShareGroupOffsets have in common: rights, and which topics count."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.api.access import check, split_by_right
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices
from penstock.api.groups.group_requests import check_share_protocol
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode

# In Kafka's own words, which people search for.
TOPIC_REFUSED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


async def change_offsets(
    services: BrokerServices,
    request: Any,
    context: RequestContext,
    needed: Operation,
    change: Callable[[Any], Awaitable[Any]],
    response: type[Any],
    refused_row: Callable[[Any], object],
) -> Any:
    """Have `change` carry out the request for the topics that the client may read, if it has the `needed` right.

    `refused_row` makes the row of another topic.
    """
    try:
        check_share_protocol(services.image)
        check(services.access, context, needed, ResourceType.GROUP, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
        allowed, refused = await split_by_right(
            services.access, context, Operation.READ, ResourceType.TOPIC, request.topics, lambda topic: topic.topic_name
        )
        changed = await change(request._replace(topics=allowed))
    except ApiError as error:
        return response(error_code=error.code, error_message=error.message)
    return changed._replace(responses=[*changed.responses, *map(refused_row, refused)])
