"""Version 0. KIP-932: a partition's new leader reads the state of a share-partition, and fences earlier leaders."""

from __future__ import annotations

from typing import Any

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.share.share_state_requests import answer_each, result_of
from penstock.core.share.state import ShareState
from penstock.wire.apis import ApiKey
from penstock.wire.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)


def _fields(state: ShareState) -> tuple[Any, ...]:
    batches = [StateBatch(*batch) for batch in state.batches]
    return state.state_epoch, state.start_offset, batches, *state.delays, state.write_number


@broker_api(
    ApiKey.READ_SHARE_GROUP_STATE,
    versions={
        0: "the first version (KIP-932)",
    },
)
async def read_share_group_state(
    services: BrokerServices, request: ReadShareGroupStateRequest, context: RequestContext
) -> ReadShareGroupStateResponse:
    answers = await answer_each(
        services, request, context, lambda key, row: services.share_states.read_state(key, row.leader_epoch)
    )
    return ReadShareGroupStateResponse(
        [
            ReadStateResult(topic_id, [result_of(PartitionResult, *one, _fields) for one in rows])
            for topic_id, rows in answers
        ]
    )
