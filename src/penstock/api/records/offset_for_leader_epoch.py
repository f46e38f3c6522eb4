"""Versions 2-4. KIP-320: where a leader epoch ended, so that a client notices a log that was cut."""

from __future__ import annotations

from penstock.api.access import refusal
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.core.replica.fencing import check_leader_epoch
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


@broker_api(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    versions={
        2: "the first version still served: the leader epoch that the client knows (KIP-320)",
        3: "the replica's id in the request, which distinguishes followers from consumers (KIP-392)",
        4: "flexible versions (KIP-482)",
    },
)
def offset_for_leader_epoch(
    services: BrokerServices, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    topics = []
    is_node = services.access.allows_on_cluster(context.client, Operation.CLUSTER_ACTION, quiet=True)
    for topic in request.topics:
        rows = []
        may_describe = is_node or services.access.allows(
            context.client, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic
        )
        for wanted in topic.partitions:
            try:
                if not may_describe:
                    raise refusal(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
                partition = services.partitions.lookup(topic.topic, b"", wanted.partition, by_id=False)
                check_leader_epoch(wanted.current_leader_epoch, partition.state.leader_epoch)
            except ApiError as error:
                rows.append(EpochEndOffset(error.code, wanted.partition))
                continue
            end = partition.end_of_epoch(wanted.leader_epoch)
            rows.append(EpochEndOffset(0, wanted.partition, end.epoch, end.end_offset))
        topics.append(OffsetForLeaderTopicResult(topic.topic, rows))
    return OffsetForLeaderEpochResponse(topics=topics)
