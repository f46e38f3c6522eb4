"""Version 0. KIP-932: a group coordinator ends the state of share-partitions."""

from __future__ import annotations

from penstock.api.share.share_state_requests import state_api
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)

API = state_api(
    ApiKey.DELETE_SHARE_GROUP_STATE,
    (0, 0),
    lambda states, key, row: states.delete(key, row.state_epoch),
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)
