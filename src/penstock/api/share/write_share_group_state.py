"""Versions 0-1. KIP-932: a partition's leader reports what became of records; KIP-1226 how many are finished."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.share.share_state_requests import answer_each, result_of
from penstock.core.share.runs import Delays, StateBatch
from penstock.core.share.state import StateWrite
from penstock.wire.apis import ApiKey
from penstock.wire.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)


def _change(row: PartitionData) -> StateWrite:
    return StateWrite(
        row.state_epoch,
        row.leader_epoch,
        row.start_offset,
        row.delivery_complete_count,
        tuple(StateBatch(*batch) for batch in row.state_batches),
        Delays(row.delays_start, row.delays_due_ms, row.delays_offset),
        row.write_number,
    )


@broker_api(
    ApiKey.WRITE_SHARE_GROUP_STATE,
    versions={
        0: "the first version (KIP-932)",
        1: "the number of finished records in the request, for the lag (KIP-1226)",
    },
)
async def write_share_group_state(
    services: BrokerServices, request: WriteShareGroupStateRequest, context: RequestContext
) -> WriteShareGroupStateResponse:
    answers = await answer_each(
        services, request, context, lambda key, row: services.share_states.write(key, _change(row))
    )
    return WriteShareGroupStateResponse(
        [WriteStateResult(topic_id, [result_of(PartitionResult, *one) for one in rows]) for topic_id, rows in answers]
    )
