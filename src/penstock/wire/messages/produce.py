"""Messages of the Produce API.

Generated from definitions/produce.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID
from penstock.wire.primitives import Buffer


class PartitionProduceData(NamedTuple):
    index: int = 0  # type: ignore[assignment]
    records: Buffer | None = None


class TopicProduceData(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partition_data: Sequence[PartitionProduceData] = ()


class ProduceRequest(NamedTuple):
    """Versions 3-13, flexible from 9."""

    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: Sequence[TopicProduceData] = ()

    def response_class(self) -> type[ProduceResponse]:
        return ProduceResponse


class BatchIndexAndErrorMessage(NamedTuple):
    batch_index: int = 0
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int = -1
    leader_epoch: int = -1


class PartitionProduceResponse(NamedTuple):
    index: int = 0  # type: ignore[assignment]
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[BatchIndexAndErrorMessage] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()


class TopicProduceResponse(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partition_responses: Sequence[PartitionProduceResponse] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class ProduceResponse(NamedTuple):
    """Versions 3-13, flexible from 9."""

    responses: Sequence[TopicProduceResponse] = ()
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()
