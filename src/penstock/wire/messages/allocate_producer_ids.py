"""Messages of the AllocateProducerIds API.

Generated from definitions/allocate_producer_ids.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple


class AllocateProducerIdsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    broker_id: int = 0
    broker_epoch: int = -1

    def response_class(self) -> type[AllocateProducerIdsResponse]:
        return AllocateProducerIdsResponse


class AllocateProducerIdsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id_start: int = 0
    producer_id_len: int = 0
