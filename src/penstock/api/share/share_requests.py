"""What ShareFetch and ShareAcknowledge have in common: who may ask, and acknowledgements."""

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
from penstock.core.share.sessions import Place, ShareSession
from penstock.model.access import ANONYMOUS, Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import format_uuid
from penstock.wire.messages.share_fetch import AcknowledgementBatch

RENEWALS_SINCE = 2
MEMBER_ID_SIZE_MAX = 36
NO_ERROR = ApiError(ErrorCode.NONE, "")


class Said(NamedTuple):
    """What a member says of the records of one partition."""

    place: Place
    batches: Sequence[Any]


class ShareRequests:
    """The checks and acknowledgements of the two APIs."""

    def __init__(self, services: BrokerServices) -> None:
        self.shares = services.shares
        self._image = services.image
        self._access = services.access

    def check(self, request: Any, context: RequestContext) -> tuple[str, str]:
        """The group and the member that ask; raises ApiError if they may not."""
        if not level_of(self._image, SHARE_VERSION):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{SHARE_VERSION} is 0 in this cluster: raise it to 1 with kafka-features.sh",
            )
        if request.group_id is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the request names no group")
        check(self._access, context, Operation.READ, ResourceType.GROUP, request.group_id)
        if not request.member_id or len(request.member_id) > MEMBER_ID_SIZE_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the request has no valid member id")
        return request.group_id, request.member_id

    def owner(self, context: RequestContext) -> str | None:
        """Whose sessions these are, where clients are told apart: others must find room for theirs."""
        principal = context.client.principal
        return principal if self._access.is_on or principal != ANONYMOUS else None

    def check_topic(self, place: Place, context: RequestContext) -> None:
        """Raises ApiError for a topic that does not exist or that the client may not read."""
        topic = self._image.topics_by_id.get(place.topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        if not self._access.allows(context.client, Operation.READ, ResourceType.TOPIC, topic.name):
            # A client that only knows the topic id does not learn the name.
            raise refusal(context, Operation.READ, ResourceType.TOPIC, format_uuid(place.topic_id))

    async def acknowledge(
        self, said: Iterable[Said], session: ShareSession, context: RequestContext, *, is_renewal: bool
    ) -> dict[Place, ApiError]:
        """Do what a member says of its records, in many partitions at once; the outcome of each, or NO_ERROR."""
        rows = [*said]
        settings = self.shares.settings_of(session.group)
        may_renew = is_renewal and context.api_version >= RENEWALS_SINCE

        async def one(row: Said) -> ApiError:
            try:
                self.check_topic(row.place, context)
                batches = [_acknowledgement(batch) for batch in row.batches]
                check_acknowledgements(batches, may_renew=may_renew)
                led = await self.shares.loaded(session.group, row.place)
                await led.acknowledge(session.member, batches, settings)
            except ApiError as error:
                return error
            return NO_ERROR

        # A member mostly speaks of one partition, which needs no task.
        outcomes = [await one(rows[0])] if len(rows) == 1 else []
        if not outcomes:
            for start in range(0, len(rows), ROWS_MAX):
                outcomes += await asyncio.gather(*map(one, rows[start : start + ROWS_MAX]))
                if start + ROWS_MAX < len(rows):
                    await next_turn()
        return {row.place: outcome for row, outcome in zip(rows, outcomes, strict=True)}


def _acknowledgement(batch: AcknowledgementBatch) -> Acknowledgement:
    return Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)


def message_of(error: ApiError) -> str | None:
    """The message of an outcome."""
    return None if error.code is ErrorCode.NONE else error.message
