"""Version 0. KIP-932: forget where a share group without members is in some topics."""

from __future__ import annotations

from penstock.api.declaration import Api
from penstock.api.share.offset_changes import TOPIC_REFUSED, make_offset_change
from penstock.model.access import Operation
from penstock.model.ids import ZERO_UUID
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

API = Api(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    (0, 0),
    on_broker=lambda services: make_offset_change(
        services,
        Operation.DELETE,
        services.share_groups.delete_offsets,
        DeleteShareGroupOffsetsResponse,
        lambda topic: DeleteShareGroupOffsetsResponseTopic(topic.topic_name, ZERO_UUID, *TOPIC_REFUSED),
    ),
)
