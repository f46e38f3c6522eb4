"""Versions 0-1. KIP-932: where share-partitions start; KIP-1226 how many records are finished from there on."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.share.share_state_requests import answer_each
from penstock.core.share.state import Answer
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)


def make_read_share_group_state_summary(services: BrokerServices) -> Handler:
    """The handler."""

    async def read_share_group_state_summary(
        request: ReadShareGroupStateSummaryRequest, context: RequestContext
    ) -> ReadShareGroupStateSummaryResponse:
        answers = await answer_each(
            request, context, services.access, lambda key, _: services.share_states.summary(key)
        )
        return ReadShareGroupStateSummaryResponse(
            [ReadStateSummaryResult(topic_id, [_row(*one) for one in rows]) for topic_id, rows in answers]
        )

    return read_share_group_state_summary


def _row(partition: int, answer: Answer) -> PartitionResult:
    if answer.error is not ErrorCode.NONE:
        return PartitionResult(partition, answer.error, answer.message)
    state = answer.state
    return PartitionResult(
        partition, 0, None, state.state_epoch, state.leader_epoch, state.start_offset, state.finished_count
    )


API = Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1), on_broker=make_read_share_group_state_summary)
