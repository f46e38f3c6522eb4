"""Version 0. KIP-932: a group coordinator ends the state of share-partitions."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.share.share_state_requests import answer_each, result_of
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)


@broker_api(
    ApiKey.DELETE_SHARE_GROUP_STATE,
    versions={
        0: "the first version (KIP-932)",
    },
)
async def delete_share_group_state(
    services: BrokerServices, request: DeleteShareGroupStateRequest, context: RequestContext
) -> DeleteShareGroupStateResponse:
    answers = await answer_each(
        services, request, context, lambda key, row: services.share_states.delete(key, row.state_epoch)
    )
    return DeleteShareGroupStateResponse(
        [DeleteStateResult(topic_id, [result_of(PartitionResult, *one) for one in rows]) for topic_id, rows in answers]
    )
