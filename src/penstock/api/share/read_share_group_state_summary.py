"""Versions 0-1. KIP-932: where share-partitions start; KIP-1226 how many records are finished from there on."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.share.share_state_requests import answer_each, result_of
from penstock.core.share.state import ShareState
from penstock.wire.apis import ApiKey
from penstock.wire.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)


@broker_api(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    versions={
        0: "the first version (KIP-932)",
        1: "the number of finished records in the response, for the lag (KIP-1226)",
    },
)
async def read_share_group_state_summary(
    services: BrokerServices, request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> ReadShareGroupStateSummaryResponse:
    answers = await answer_each(services, request, context, lambda key, _: services.share_states.summary(key))
    return ReadShareGroupStateSummaryResponse(
        [
            ReadStateSummaryResult(topic_id, [result_of(PartitionResult, *one, _fields) for one in rows])
            for topic_id, rows in answers
        ]
    )


def _fields(state: ShareState) -> tuple[int, ...]:
    return state.state_epoch, state.leader_epoch, state.start_offset, state.finished_count
