"""What ShareFetch and ShareAcknowledge have in common: the checks, and acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from penstock.api.access import check, refusal
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices
from penstock.api.pieces import ROWS_MAX, next_turn
from penstock.core.metadata.features import SHARE_VERSION, level_of
from penstock.core.share.acknowledgements import Acknowledgement, check_acknowledgements
from penstock.core.share.sessions import ShareSession, TopicIdPartition
from penstock.model.access import ANONYMOUS, Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import format_uuid
from penstock.wire.messages.share_fetch import AcknowledgementBatch

RENEWALS_SINCE = 2
MEMBER_ID_SIZE_MAX = 36
NO_ERROR = ApiError(ErrorCode.NONE, "")


class PartitionAcknowledgements(NamedTuple):
    """What a member acknowledges of one partition."""

    place: TopicIdPartition
    batches: Sequence[Any]


def check_share_request(services: BrokerServices, request: Any, context: RequestContext) -> tuple[str, str]:
    """The group and the member of the request; raises ApiError if it is invalid or not allowed."""
    if not level_of(services.image, SHARE_VERSION):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{SHARE_VERSION} is 0 in this cluster: raise it to 1 with kafka-features.sh",
        )
    if request.group_id is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the request names no group")
    check(services.access, context, Operation.READ, ResourceType.GROUP, request.group_id)
    if not request.member_id or len(request.member_id) > MEMBER_ID_SIZE_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the request has no valid member id")
    return request.group_id, request.member_id


def session_owner(services: BrokerServices, context: RequestContext) -> str | None:
    """The user whose limit of sessions counts, where users are distinguished."""
    principal = context.client.principal
    return principal if services.access.is_on or principal != ANONYMOUS else None


def check_topic(services: BrokerServices, place: TopicIdPartition, context: RequestContext) -> None:
    """Raises ApiError for a topic that does not exist or that the client may not read."""
    topic = services.image.topics_by_id.get(place.topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    if not services.access.allows(context.client, Operation.READ, ResourceType.TOPIC, topic.name):
        # A client that only knows the topic id does not learn the name.
        raise refusal(context, Operation.READ, ResourceType.TOPIC, format_uuid(place.topic_id))


async def acknowledge(
    services: BrokerServices,
    acknowledgements: Iterable[PartitionAcknowledgements],
    session: ShareSession,
    context: RequestContext,
    *,
    is_renewal: bool,
) -> dict[TopicIdPartition, ApiError]:
    """Carry out a member's acknowledgements, in many partitions at once; the outcome of each, or NO_ERROR."""
    rows = [*acknowledgements]
    shares = services.shares
    settings = shares.settings_of(session.group)
    may_renew = is_renewal and context.api_version >= RENEWALS_SINCE

    async def acknowledge_one(row: PartitionAcknowledgements) -> ApiError:
        try:
            check_topic(services, row.place, context)
            batches = [_acknowledgement(batch) for batch in row.batches]
            check_acknowledgements(batches, may_renew=may_renew)
            led = await shares.loaded(session.group, row.place)
            await led.acknowledge(session.member, batches, settings)
        except ApiError as error:
            return error
        return NO_ERROR

    # A member mostly acknowledges records of one partition, which needs no task.
    outcomes = [await acknowledge_one(rows[0])] if len(rows) == 1 else []
    if not outcomes:
        for start in range(0, len(rows), ROWS_MAX):
            outcomes += await asyncio.gather(*map(acknowledge_one, rows[start : start + ROWS_MAX]))
            if start + ROWS_MAX < len(rows):
                await next_turn()
    return {row.place: outcome for row, outcome in zip(rows, outcomes, strict=True)}


def _acknowledgement(batch: AcknowledgementBatch) -> Acknowledgement:
    return Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)


def message_of(error: ApiError) -> str | None:
    """The message of an outcome."""
    return None if error.code is ErrorCode.NONE else error.message
