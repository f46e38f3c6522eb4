"""Version 0. KIP-932: forget where a share group without members is in some topics."""

from __future__ import annotations

from penstock.api.access import check, split_by_right
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.groups.group_requests import check_share_protocol
from penstock.core.metadata.image import Image
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.security.access_control import AccessControl
from penstock.runtime.share.share_groups import ShareGroups
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

API = Api(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    (0, 0),
    on_broker=lambda services: make_delete_share_group_offsets(services.image, services.share_groups, services.access),
)


def make_delete_share_group_offsets(image: Image, groups: ShareGroups, access: AccessControl) -> Handler:
    """The handler."""

    async def delete_share_group_offsets(
        request: DeleteShareGroupOffsetsRequest, context: RequestContext
    ) -> DeleteShareGroupOffsetsResponse:
        try:
            check_share_protocol(image)
            check(access, context, Operation.DELETE, ResourceType.GROUP, request.group_id)
            if not request.group_id:
                raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
            allowed, refused = split_by_right(
                access, context, Operation.READ, ResourceType.TOPIC, request.topics, lambda topic: topic.topic_name
            )
            response = await groups.delete_offsets(request._replace(topics=allowed))
        except ApiError as error:
            return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
        return response._replace(responses=[*response.responses, *map(_refused, refused)])

    return delete_share_group_offsets


def _refused(topic: DeleteShareGroupOffsetsRequestTopic) -> DeleteShareGroupOffsetsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DeleteShareGroupOffsetsResponseTopic(
        topic.topic_name, error_code=code, error_message="Topic authorization failed."
    )
