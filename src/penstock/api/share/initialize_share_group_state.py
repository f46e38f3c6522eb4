"""Version 0. KIP-932: a group coordinator begins the state of share-partitions."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.share.share_state_requests import answer_each, result_of
from penstock.wire.apis import ApiKey
from penstock.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)


@broker_api(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    versions={
        0: "the first version (KIP-932)",
    },
)
async def initialize_share_group_state(
    services: BrokerServices, request: InitializeShareGroupStateRequest, context: RequestContext
) -> InitializeShareGroupStateResponse:
    answers = await answer_each(
        services,
        request,
        context,
        lambda key, row: services.share_states.initialize(key, row.state_epoch, row.start_offset),
    )
    return InitializeShareGroupStateResponse(
        [
            InitializeStateResult(topic_id, [result_of(PartitionResult, *one) for one in rows])
            for topic_id, rows in answers
        ]
    )
