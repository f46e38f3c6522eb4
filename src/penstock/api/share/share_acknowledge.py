"""Versions 1-2. KIP-932: what a member of a share group says of the records it holds. KIP-1222 locks are renewed."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.pieces import in_turns
from penstock.api.share.share_requests import Said, ShareRequests, message_of
from penstock.core.share.sessions import FINAL_EPOCH, Place
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


def make_share_acknowledge(services: BrokerServices) -> Handler:
    """The handler."""
    requests = ShareRequests(services)
    shares = requests.shares

    async def share_acknowledge(request: ShareAcknowledgeRequest, context: RequestContext) -> ShareAcknowledgeResponse:
        try:
            group, member = requests.check(request, context)
            session = shares.sessions.acknowledge(group, member, request.share_session_epoch)
        except ApiError as error:
            return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
        said = [
            Said(Place(topic.topic_id, row.partition_index), row.acknowledgement_batches)
            for topic in request.topics
            for row in topic.partitions
        ]
        outcomes = await requests.acknowledge(said, session, context, is_renewal=request.is_renew_ack)
        if request.share_session_epoch == FINAL_EPOCH:
            await shares.end_session(session)
        lock_ms = shares.settings_of(group).partition.lock_ms
        return await respond(outcomes, context.client.listener_name, lock_ms)

    async def respond(outcomes: dict[Place, ApiError], listener_name: str, lock_ms: int) -> ShareAcknowledgeResponse:
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

    return share_acknowledge


API = Api(ApiKey.SHARE_ACKNOWLEDGE, (1, 2), on_broker=make_share_acknowledge)
