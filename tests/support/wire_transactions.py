"""A transactional producer that does exactly what a test wants, in protocol version 1 or 2, also what none should."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.wire_client import WireClient, batch_of

TRANSACTIONAL_IDS = 1
PATIENCE_S = 20.0
_PASSING = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )
)


@dataclass
class WireProducer:
    """One instance of a producer. `version` is the transaction protocol's."""

    wire: WireClient
    name: str
    version: int = 1
    producer_id: int = -1
    producer_epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    def start(self, timeout_ms: int = 60_000) -> None:
        """Find the coordinator and become the one instance."""
        self._patiently(FindCoordinatorRequest("", TRANSACTIONAL_IDS, [self.name]), 6)
        response = self._patiently(InitProducerIdRequest(self.name, timeout_ms), 5)
        assert response.error_code == ErrorCode.NONE
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self.sequences.clear()

    def add(self, topic: str, partition: int = 0) -> ErrorCode:
        """Take a partition into the transaction, as version 1 must before it writes."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [partition])],
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            response = self.wire.call(request, 3)
            error = ErrorCode(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
            if error not in _PASSING or time.monotonic() > deadline:
                return error
            time.sleep(0.02)

    def write(self, topic: str, value: bytes, partition: int = 0, sequence: int | None = None) -> Any:
        """Write one record, with the next sequence or any other; returns the partition's answer."""
        place = topic, partition
        if sequence is None:
            sequence = self.sequences.get(place, 0)
        batch = batch_of(
            [value],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(topic, bytes(16), [PartitionProduceData(partition, batch)])
        request = ProduceRequest(self.name, -1, 10_000, [data])
        row = self.wire.call(request, 11 if self.version == 1 else 12).responses[0].partition_responses[0]
        if row.error_code == ErrorCode.NONE:
            self.sequences[place] = sequence + 1
        return row

    def end(self, *, commit: bool) -> ErrorCode:
        """Commit or abort; in version 2 this gives the instance its next epoch."""
        request = EndTxnRequest(self.name, self.producer_id, self.producer_epoch, commit)
        response = self._patiently(request, 3 if self.version == 1 else 5)
        if self.version == 2 and response.error_code == ErrorCode.NONE:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return ErrorCode(response.error_code)

    def _patiently(self, request: Any, version: int) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            response = self.wire.call(request, version)
            row = response.coordinators[0] if isinstance(request, FindCoordinatorRequest) else response
            if row.error_code not in _PASSING or time.monotonic() > deadline:
                return response
            time.sleep(0.02)
