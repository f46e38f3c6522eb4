"""Version 0. KIP-932: a partition's new leader reads the state of a share-partition, and fences earlier leaders."""

from __future__ import annotations

from typing import Any

from penstock.api.share.share_state_requests import state_api
from penstock.core.share.state import ShareState
from penstock.wire.apis import ApiKey
from penstock.wire.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)


def _fields(state: ShareState) -> tuple[Any, ...]:
    batches = [StateBatch(*batch) for batch in state.batches]
    return state.state_epoch, state.start_offset, batches, *state.delays, state.write_number


API = state_api(
    ApiKey.READ_SHARE_GROUP_STATE,
    (0, 0),
    lambda states, key, row: states.read_state(key, row.leader_epoch),
    ReadShareGroupStateResponse,
    ReadStateResult,
    PartitionResult,
    _fields,
)
