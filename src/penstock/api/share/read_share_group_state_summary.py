"""Versions 0-1. KIP-932: where share-partitions start; KIP-1226 how many records are finished from there on."""

from __future__ import annotations

from penstock.api.share.share_state_requests import state_api
from penstock.wire.apis import ApiKey
from penstock.wire.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)

API = state_api(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    (0, 1),
    lambda states, key, _: states.summary(key),
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
    PartitionResult,
    lambda state: (state.state_epoch, state.leader_epoch, state.start_offset, state.finished_count),
)
