"""Versions 0-1. KIP-932: a partition's leader says what became of records; KIP-1226 how many are finished."""

from __future__ import annotations

from penstock.api.share.share_state_requests import state_api
from penstock.core.share.runs import Delays, StateBatch
from penstock.core.share.state import Change
from penstock.wire.apis import ApiKey
from penstock.wire.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)


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


API = state_api(
    ApiKey.WRITE_SHARE_GROUP_STATE,
    (0, 1),
    lambda states, key, row: states.write(key, _change(row)),
    WriteShareGroupStateResponse,
    WriteStateResult,
    PartitionResult,
)
