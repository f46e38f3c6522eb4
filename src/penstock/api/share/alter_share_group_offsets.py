"""Version 0. KIP-932: have a share group without members start elsewhere."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.share.offset_changes import TOPIC_REFUSED, change_offsets
from penstock.model.access import Operation
from penstock.model.ids import ZERO_UUID
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)


@broker_api(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    versions={
        0: "the first version (KIP-932)",
    },
)
async def alter_share_group_offsets(
    services: BrokerServices, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    changed: AlterShareGroupOffsetsResponse = await change_offsets(
        services,
        request,
        context,
        Operation.READ,
        services.share_groups.alter_offsets,
        AlterShareGroupOffsetsResponse,
        _refused,
    )
    return changed


def _refused(topic: AlterShareGroupOffsetsRequestTopic) -> AlterShareGroupOffsetsResponseTopic:
    rows = [AlterShareGroupOffsetsResponsePartition(row.partition_index, *TOPIC_REFUSED) for row in topic.partitions]
    # Kafka returns the id of a topic that exists, and so whether a guessed name is right.
    return AlterShareGroupOffsetsResponseTopic(topic.topic_name, ZERO_UUID, rows)
