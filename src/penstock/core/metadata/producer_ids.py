"""Blocks of producer ids; no id is allocated twice."""

from __future__ import annotations

from penstock.core.metadata.brokers import check_broker_epoch
from penstock.core.metadata.image import Image
from penstock.core.metadata.result import Result
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.metadata_records import ProducerIdsRecord

PRODUCER_ID_BLOCK = 1000
PRODUCER_ID_MAX = 2**63 - 1


def allocate(image: Image, broker_id: int, broker_epoch: int) -> Result[range]:
    """The next block, for a registered broker; raises STALE_BROKER_EPOCH for an earlier incarnation of the broker."""
    check_broker_epoch(image, broker_id, broker_epoch)
    first = image.next_producer_id
    if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been allocated")
    after = first + PRODUCER_ID_BLOCK
    assert 0 <= first < after <= PRODUCER_ID_MAX, "no id is allocated twice"
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=after)
    return Result([record], range(first, after))
