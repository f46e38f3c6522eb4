"""Versions 0-1. KIP-932: a partition's leader says what became of records; KIP-1226 how many are finished."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.share.share_state_requests import answer_each
from penstock.core.share.runs import Delays, StateBatch
from penstock.core.share.state import Change
from penstock.wire.apis import ApiKey
from penstock.wire.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)


def make_write_share_group_state(services: BrokerServices) -> Handler:
    """The handler."""

    async def write_share_group_state(
        request: WriteShareGroupStateRequest, context: RequestContext
    ) -> WriteShareGroupStateResponse:
        answers = await answer_each(
            request, context, services.access, lambda key, row: services.share_states.write(key, _change(row))
        )
        return WriteShareGroupStateResponse(
            [
                WriteStateResult(
                    topic_id, [PartitionResult(partition, one.error, one.message) for partition, one in rows]
                )
                for topic_id, rows in answers
            ]
        )

    return write_share_group_state


def _change(row: PartitionData) -> Change:
    return Change(
        row.state_epoch,
        row.leader_epoch,
        row.start_offset,
        row.delivery_complete_count,
        tuple(StateBatch(*batch) for batch in row.state_batches),
        Delays(row.delays_start, row.delays_due_ms, row.delays_offset),
        row.write_number,
    )


API = Api(ApiKey.WRITE_SHARE_GROUP_STATE, (0, 1), on_broker=make_write_share_group_state)
