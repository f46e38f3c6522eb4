"""Version 0. KIP-932: have a share group without members start elsewhere."""

from __future__ import annotations

from penstock.api.access import check, split_by_right
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.groups.group_requests import check_share_protocol
from penstock.core.metadata.image import Image
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.runtime.security.access_control import AccessControl
from penstock.runtime.share.share_groups import ShareGroups
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

API = Api(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    (0, 0),
    on_broker=lambda services: make_alter_share_group_offsets(services.image, services.share_groups, services.access),
)


def make_alter_share_group_offsets(image: Image, groups: ShareGroups, access: AccessControl) -> Handler:
    """The handler."""

    async def alter_share_group_offsets(
        request: AlterShareGroupOffsetsRequest, context: RequestContext
    ) -> AlterShareGroupOffsetsResponse:
        try:
            check_share_protocol(image)
            check(access, context, Operation.READ, ResourceType.GROUP, request.group_id)
            if not request.group_id:
                raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
            allowed, refused = split_by_right(
                access, context, Operation.READ, ResourceType.TOPIC, request.topics, lambda topic: topic.topic_name
            )
            response = await groups.alter_offsets(request._replace(topics=allowed))
        except ApiError as error:
            return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
        return response._replace(responses=[*response.responses, *map(refused_row, refused)])

    def refused_row(topic: AlterShareGroupOffsetsRequestTopic) -> AlterShareGroupOffsetsResponseTopic:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rows = [
            AlterShareGroupOffsetsResponsePartition(row.partition_index, code, "Topic authorization failed.")
            for row in topic.partitions
        ]
        # As in Kafka, the id is told all the same.
        found = image.topics.get(topic.topic_name)
        return AlterShareGroupOffsetsResponseTopic(topic.topic_name, found.topic_id if found else ZERO_UUID, rows)

    return alter_share_group_offsets
