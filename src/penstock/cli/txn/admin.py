"""Administration of transactions: what coordinators know, what is open on partitions, and aborting it.

A transaction is hanging if a partition has it open and its coordinator does not: it will never end, and read_committed
consumers wait there. Transaction verification (KIP-890) prevents that; older brokers, or a lost coordinator log, do
not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.cli.cluster.view import ClusterView, read_view
from penstock.cli.failures import CommandFailure
from penstock.cli.wire_client import WireClient, check_error, error_text
from penstock.client.failures import NoAnswer
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.wire.apis import Request
from penstock.wire.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

R = TypeVar("R")
TRANSACTIONAL_IDS = 1
PATIENCE_S = 30.0
RETRY_S = 0.2
OPEN_STATES = frozenset(("Ongoing", "PrepareCommit", "PrepareAbort"))

# Transient errors while a coordinator moves or ends a transaction.
_PASSING = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction of a partition."""

    partition: TopicPartition
    producer: ProducerState

    def age_s(self, now_s: float) -> float:
        """The seconds since its producer's last write."""
        return max(0.0, now_s - self.producer.last_timestamp / 1000)


class TransactionAdmin:
    """Transaction requests to all brokers of a cluster."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._view: ClusterView | None = None

    @property
    def view(self) -> ClusterView:
        """The cluster's state at the first access."""
        if self._view is None:
            self._view = read_view(self._client)
        return self._view

    def _ask_broker(self, node_id: int, request: Request[R]) -> R:
        broker = self.view.brokers.get(node_id)
        if broker is None:
            raise CommandFailure(f"broker {node_id} is not registered")
        try:
            return self._client.ask_at(broker.address, request)
        except NoAnswer as error:
            raise CommandFailure(f"broker {node_id} does not answer", str(error)) from error

    def transactional_ids(self, states: Sequence[str] = (), producer_ids: Iterable[int] = ()) -> list[str]:
        """All transactional ids, or those in these states or of these producers."""
        found: set[str] = set()
        wanted = ListTransactionsRequest(states, [*producer_ids])
        for broker in self.view.alive():
            response = self._ask_broker(broker.node_id, wanted)
            check_error(response.error_code, None, f"broker {broker.node_id} cannot list its transactions")
            found.update(row.transactional_id for row in response.transaction_states)
        return sorted(found)

    def describe(self, transactional_id: str) -> TransactionState:
        """Describe one id. Raises CommandFailure if its coordinator does not know it."""
        request = DescribeTransactionsRequest([transactional_id])
        row: TransactionState = self._patiently(
            transactional_id, lambda coordinator: self._ask_broker(coordinator, request).transaction_states[0]
        )
        check_error(
            row.error_code,
            None,
            f"cannot describe the transaction of {transactional_id}",
            "`penstock txn list` shows the ids that are known",
        )
        return row

    def _patiently(self, transactional_id: str, ask: Callable[[int], Any]) -> Any:
        """Ask an id's coordinator, and retry while it moves."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self._client.ask(FindCoordinatorRequest("", TRANSACTIONAL_IDS, [transactional_id])).coordinators[0]
            row = found
            if found.error_code == ErrorCode.NONE:
                row = ask(found.node_id)
            if row.error_code not in _PASSING:
                return row
            if time.monotonic() > deadline:
                raise CommandFailure(
                    f"the coordinator of {transactional_id} is not ready", error_text(row.error_code, None)
                )
            time.sleep(RETRY_S)

    # What is open on partitions.

    def open_transactions(self, topic: str | None = None) -> list[OpenTransaction]:
        """Every open transaction on the partitions of one topic, or of all."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for name, partition in self.view.partitions.items():
            if partition.leader >= 0 and topic in (None, name.topic):
                by_leader.setdefault(partition.leader, {}).setdefault(name.topic, []).append(name.partition)
        found = []
        for leader, topics in by_leader.items():
            request = DescribeProducersRequest([TopicRequest(*row) for row in topics.items()])
            for answered in self._ask_broker(leader, request).topics:
                for row in answered.partitions:
                    name = TopicPartition(answered.name, row.partition_index)
                    found += [
                        OpenTransaction(name, one) for one in row.active_producers if one.current_txn_start_offset >= 0
                    ]
        return sorted(found, key=lambda one: (one.partition, one.producer.producer_id))

    def hanging(self, topic: str | None, idle_s: float) -> list[OpenTransaction]:
        """Open transactions that have been idle for this long and that no coordinator will end."""
        now_s = time.time()
        candidates = [one for one in self.open_transactions(topic) if one.age_s(now_s) >= idle_s]
        if not candidates:
            return []
        known: set[tuple[int, TopicPartition]] = set()
        for name in self.transactional_ids(producer_ids={one.producer.producer_id for one in candidates}):
            row = self.describe(name)
            if row.transaction_state in OPEN_STATES:
                partitions = [TopicPartition(data.topic, index) for data in row.topics for index in data.partitions]
                known.update((row.producer_id, partition) for partition in partitions)
        return [one for one in candidates if (one.producer.producer_id, one.partition) not in known]

    def abort(self, transactional_id: str) -> None:
        """Abort an id's open transaction, as a new instance of its producer would; the current one is fenced."""
        before = self.describe(transactional_id)
        request = InitProducerIdRequest(transactional_id, before.transaction_timeout_ms)
        row = self._patiently(transactional_id, lambda coordinator: self._ask_broker(coordinator, request))
        check_error(row.error_code, None, f"the transaction of {transactional_id} cannot be aborted")

    def end_hanging(self, hanging: OpenTransaction) -> None:
        """Have the partition's leader write the abort marker that no coordinator will write."""
        name, producer = hanging.partition, hanging.producer
        marker = WritableTxnMarker(
            producer.producer_id,
            producer.producer_epoch,
            False,
            [WritableTxnMarkerTopic(name.topic, [name.partition])],
            # A partition that never had a marker of this producer has no coordinator epoch.
            max(0, producer.coordinator_epoch),
        )
        response = self._ask_broker(self.view.partitions[name].leader, WriteTxnMarkersRequest([marker]))
        error = response.markers[0].topics[0].partitions[0].error_code
        check_error(error, None, f"the transaction of producer {producer.producer_id} in {name} cannot be aborted")
