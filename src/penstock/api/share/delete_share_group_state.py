"""Version 0. KIP-932: a group coordinator ends the state of share-partitions."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.share.share_state_requests import answer_each
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)


def make_delete_share_group_state(services: BrokerServices) -> Handler:
    """The handler."""

    async def delete_share_group_state(
        request: DeleteShareGroupStateRequest, context: RequestContext
    ) -> DeleteShareGroupStateResponse:
        answers = await answer_each(request, context, services.access, lambda key, _: services.share_states.delete(key))
        return DeleteShareGroupStateResponse(
            [
                DeleteStateResult(
                    topic_id, [PartitionResult(partition, one.error, one.message) for partition, one in rows]
                )
                for topic_id, rows in answers
            ]
        )

    return delete_share_group_state


API = Api(ApiKey.DELETE_SHARE_GROUP_STATE, (0, 0), on_broker=make_delete_share_group_state)
