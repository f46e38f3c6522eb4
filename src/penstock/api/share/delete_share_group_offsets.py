"""Version 0. KIP-932: forget where a share group without members is in some topics."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.share.offset_changes import TOPIC_REFUSED, change_offsets
from penstock.model.access import Operation
from penstock.model.ids import ZERO_UUID
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


@broker_api(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    versions={
        0: "the first version (KIP-932)",
    },
)
async def delete_share_group_offsets(
    services: BrokerServices, request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    changed: DeleteShareGroupOffsetsResponse = await change_offsets(
        services,
        request,
        context,
        Operation.DELETE,
        services.share_groups.delete_offsets,
        DeleteShareGroupOffsetsResponse,
        _refused,
    )
    return changed


def _refused(topic: DeleteShareGroupOffsetsRequestTopic) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(topic.topic_name, ZERO_UUID, *TOPIC_REFUSED)
