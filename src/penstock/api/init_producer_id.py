"""Versions 0-5. KIP-98 producer ids for idempotence.

Not yet: transactional ids, whose coordinator is missing.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from penstock.api.context import Handler, RequestContext
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.producer_ids import ProducerIds
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def make_init_producer_id(producer_ids: ProducerIds) -> Handler:
    """The handler."""

    def init_producer_id(
        request: InitProducerIdRequest, context: RequestContext
    ) -> InitProducerIdResponse | Coroutine[Any, Any, InitProducerIdResponse]:
        if request.transactional_id is not None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if request.transactional_id else ErrorCode.INVALID_REQUEST
            return InitProducerIdResponse(error_code=code)
        return allot()

    async def allot() -> InitProducerIdResponse:
        try:
            return InitProducerIdResponse(producer_id=await producer_ids.take(), producer_epoch=0)
        except ApiError as error:
            return InitProducerIdResponse(error_code=error.code)

    return init_producer_id
