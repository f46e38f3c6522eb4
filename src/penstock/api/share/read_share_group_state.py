"""Version 0. KIP-932: a partition's new leader reads the state of a share-partition, and fences earlier leaders."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.share.share_state_requests import answer_each
from penstock.core.share.state import Answer
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)


def make_read_share_group_state(services: BrokerServices) -> Handler:
    """The handler."""

    async def read_share_group_state(
        request: ReadShareGroupStateRequest, context: RequestContext
    ) -> ReadShareGroupStateResponse:
        answers = await answer_each(
            request, context, services.access, lambda key, row: services.share_states.read_state(key, row.leader_epoch)
        )
        return ReadShareGroupStateResponse(
            [ReadStateResult(topic_id, [_row(*one) for one in rows]) for topic_id, rows in answers]
        )

    return read_share_group_state


def _row(partition: int, answer: Answer) -> PartitionResult:
    if answer.error is not ErrorCode.NONE:
        return PartitionResult(partition, answer.error, answer.message)
    state = answer.state
    batches = [StateBatch(*batch) for batch in state.batches]
    return PartitionResult(
        partition, 0, None, state.state_epoch, state.start_offset, batches, *state.delays, state.write_number
    )


API = Api(ApiKey.READ_SHARE_GROUP_STATE, (0, 0), on_broker=make_read_share_group_state)
