"""Version 0. KIP-932: a group coordinator begins the state of share-partitions."""

from __future__ import annotations

from penstock.api.share.share_state_requests import state_api
from penstock.wire.apis import ApiKey
from penstock.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)

API = state_api(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    (0, 0),
    lambda states, key, row: states.initialize(key, row.state_epoch, row.start_offset),
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)
