"""What AlterShareGroupOffsets and DeleteShareGroupOffsets have in common: who may ask, and which topics count."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.api.access import check, split_by_right
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import BrokerServices
from penstock.api.groups.group_requests import check_share_protocol
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode

# In Kafka's own words, which people search for.
TOPIC_REFUSED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


def make_offset_change(
    services: BrokerServices,
    needed: Operation,
    change: Callable[[Any], Awaitable[Any]],
    response: type[Any],
    refused_row: Callable[[Any], Any],
) -> Handler:
    """The handler: `change` gets the topics that the client may read, if it has the right that is needed on the group.

    `refused_row` makes the row of another topic.
    """
    access = services.access

    async def change_offsets(request: Any, context: RequestContext) -> Any:
        try:
            check_share_protocol(services.image)
            check(access, context, needed, ResourceType.GROUP, request.group_id)
            if not request.group_id:
                raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
            allowed, refused = await split_by_right(
                access, context, Operation.READ, ResourceType.TOPIC, request.topics, lambda topic: topic.topic_name
            )
            changed = await change(request._replace(topics=allowed))
        except ApiError as error:
            return response(error_code=error.code, error_message=error.message)
        return changed._replace(responses=[*changed.responses, *map(refused_row, refused)])

    return change_offsets
