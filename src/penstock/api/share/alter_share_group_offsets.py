"""Version 0. KIP-932: have a share group without members start elsewhere."""

from __future__ import annotations

from penstock.api.declaration import Api
from penstock.api.share.offset_changes import TOPIC_REFUSED, make_offset_change
from penstock.model.access import Operation
from penstock.model.ids import ZERO_UUID
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)


def _refused(topic: AlterShareGroupOffsetsRequestTopic) -> AlterShareGroupOffsetsResponseTopic:
    rows = [AlterShareGroupOffsetsResponsePartition(row.partition_index, *TOPIC_REFUSED) for row in topic.partitions]
    # Kafka tells the id of a topic that exists, and so whether a guessed name is right.
    return AlterShareGroupOffsetsResponseTopic(topic.topic_name, ZERO_UUID, rows)


API = Api(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    (0, 0),
    on_broker=lambda services: make_offset_change(
        services,
        Operation.READ,
        services.share_groups.alter_offsets,
        AlterShareGroupOffsetsResponse,
        _refused,
    ),
)
