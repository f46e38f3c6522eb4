"""Version 0. KIP-932: a group coordinator begins the state of share-partitions."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.share.share_state_requests import answer_each
from penstock.wire.apis import ApiKey
from penstock.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)


def make_initialize_share_group_state(services: BrokerServices) -> Handler:
    """The handler."""
    states = services.share_states
    access = services.access

    async def initialize_share_group_state(
        request: InitializeShareGroupStateRequest, context: RequestContext
    ) -> InitializeShareGroupStateResponse:
        answers = await answer_each(
            request, context, access, lambda key, row: states.initialize(key, row.state_epoch, row.start_offset)
        )
        return InitializeShareGroupStateResponse(
            [
                InitializeStateResult(
                    topic_id, [PartitionResult(partition, one.error, one.message) for partition, one in rows]
                )
                for topic_id, rows in answers
            ]
        )

    return initialize_share_group_state


API = Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, (0, 0), on_broker=make_initialize_share_group_state)
