"""Versions 1-2. KIP-932: a member of a share group acknowledges records that it holds. KIP-1222 locks are renewed."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.pieces import in_turns
from penstock.api.share.share_requests import PartitionAcknowledgements, acknowledge, check_share_request, message_of
from penstock.core.share.sessions import FINAL_EPOCH, TopicIdPartition
from penstock.model.errors import ApiError
from penstock.model.ids import Uuid
from penstock.runtime.replication.leader_hints import LeaderHints
from penstock.wire.apis import ApiKey
from penstock.wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


@broker_api(
    ApiKey.SHARE_ACKNOWLEDGE,
    versions={
        1: "the first version still served: accept, release, reject (KIP-932)",
        2: "locks can be renewed; the response contains how long they last (KIP-1222)",
    },
)
async def share_acknowledge(
    services: BrokerServices, request: ShareAcknowledgeRequest, context: RequestContext
) -> ShareAcknowledgeResponse:
    try:
        group, member = check_share_request(services, request, context)
        session = services.shares.sessions.acknowledge(group, member, request.share_session_epoch)
    except ApiError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    acknowledgements = [
        PartitionAcknowledgements(TopicIdPartition(topic.topic_id, row.partition_index), row.acknowledgement_batches)
        for topic in request.topics
        for row in topic.partitions
    ]
    outcomes = await acknowledge(services, acknowledgements, session, context, is_renewal=request.is_renew_ack)
    if request.share_session_epoch == FINAL_EPOCH:
        await services.shares.end_session(session)
    lock_ms = services.shares.settings_of(group).partition.lock_ms
    return await _respond(services, outcomes, context.client.listener_name, lock_ms)


async def _respond(
    services: BrokerServices, outcomes: dict[TopicIdPartition, ApiError], listener_name: str, lock_ms: int
) -> ShareAcknowledgeResponse:
    hints = LeaderHints(services.partitions)
    topics: dict[Uuid, list[PartitionData]] = {}
    async for place, error in in_turns(outcomes.items()):
        leader = LeaderIdAndEpoch(*hints.leader(error.code, "", *place, by_id=True))
        row = PartitionData(place.partition, error.code, message_of(error), leader)
        topics.setdefault(place.topic_id, []).append(row)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=[ShareAcknowledgeTopicResponse(topic_id, rows) for topic_id, rows in topics.items()],
        node_endpoints=hints.endpoints(listener_name, NodeEndpoint),
    )
