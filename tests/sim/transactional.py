"""A transactional producer with Kafka's rules, in version 1 of the protocol (as librdkafka speaks it) or 2 (KIP-890).

In version 1 partitions and offsets are announced to the coordinator before they are written, and the epoch stays. A
batch whose outcome is unknown is given up with its transaction; then the epoch is raised by InitProducerId, so
that what is still on its way comes too late. In version 2 writing announces, and every end raises the epoch.

One that was replaced learns so by `Fenced`, and is of no more use. `GaveUp` means that its transaction must be aborted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.records import Record, build_batch
from sim.wire import BACKOFF_S, RETRIABLE, Cluster, Failed
from support.history import History, Kind, Operation, Status, Transaction

GROUP, TRANSACTION = 0, 1
PRODUCE_TIMEOUT_MS = 2_000
# How long a batch or an announcement is tried before its transaction is given up.
PATIENCE_S = 3.0
LATE_S_MAX = 1.5
VERSIONS = {
    1: {
        "InitProducerIdRequest": 4,
        "AddPartitionsToTxnRequest": 0,
        "AddOffsetsToTxnRequest": 0,
        "EndTxnRequest": 1,
        "TxnOffsetCommitRequest": 3,
        "ProduceRequest": 10,
    },
    2: {"InitProducerIdRequest": 5, "EndTxnRequest": 5, "TxnOffsetCommitRequest": 5, "ProduceRequest": 12},
}
FENCED = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
FORGOTTEN = frozenset((ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID))
AGAIN = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}

Value = tuple[str, tuple[str, int] | None]


class Fenced(Exception):
    """There is a successor, or the coordinator ended the transaction by itself: this producer is over."""


class GaveUp(Exception):
    """The transaction cannot be committed any more."""


class TransactionalProducer:
    """One instance of a transactional id. `protocol` is 1 or 2; `late_part` of all batches arrive late."""

    def __init__(
        self,
        name: str,
        transactional_id: str,
        protocol: int,
        cluster: Cluster,
        history: History,
        now_ms: Callable[[], int],
        timeout_ms: int,
        late_part: float = 0.0,
    ) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.protocol = protocol
        self.cluster = cluster
        self.history = history
        self.transaction: Transaction | None = None
        self._now_ms = now_ms
        self._timeout_ms = timeout_ms
        self._late_part = late_part
        self._identity = -1, -1
        self._sequences: dict[tuple[str, int], int] = {}
        # What the coordinator knows to be part of the transaction.
        self._announced: set[tuple[str, int] | str] = set()
        # Whether the coordinator may have something of the transaction.
        self._has_begun = False
        self._in_doubt = False
        self._addresses: dict[tuple[int, str], tuple[str, int]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def ask(self, kind: int, key: str, request: Any) -> Any:
        """Ask the coordinator of a group or transactional id; raises Failed, after which it is looked for again."""
        address = self._addresses.get((kind, key))
        if address is None:
            wanted = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            found = (await self.cluster.call(self.cluster.some_address(), wanted)).coordinators[0]
            if found.error_code:
                raise Failed(ErrorCode(found.error_code).name, maybe_done=False)
            address = self._addresses[kind, key] = found.host, found.port
        try:
            version = VERSIONS[self.protocol].get(type(request).__name__)
            return await self.cluster.call(address, request, version=version)
        except Failed:
            self.forget_coordinator(kind, key)
            raise

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._addresses.pop((kind, key), None)

    async def _ask_patiently(self, request: Any, code_of: Callable[[Any], int], kind: int, key: str) -> None:
        """Until it worked; raises GaveUp or Fenced."""
        until_s = asyncio.get_running_loop().time() + PATIENCE_S
        reason = ""
        while asyncio.get_running_loop().time() < until_s:
            try:
                code = code_of(await self.ask(kind, key, request))
            except Failed as failed:
                reason = str(failed)
            else:
                reason = ErrorCode(code).name
                if code == ErrorCode.NONE:
                    return
                self._raise_unless_again(code)
                if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    self.forget_coordinator(kind, key)
            await self._pause()
        raise GaveUp(reason)

    def _raise_unless_again(self, code: int) -> None:
        if code in FENCED:
            self._check_reason(code)
            raise Fenced(ErrorCode(code).name)
        if code not in AGAIN:
            raise GaveUp(ErrorCode(code).name)

    def _check_reason(self, code: int) -> None:
        """We are shut out: by a successor, or because our transaction took too long. Anything else is wrong."""
        transaction = self.transaction
        if code not in FENCED or transaction is None:
            return
        took_s = self.history.now() - transaction.began
        starts = [one for one in self.history.operations if one.kind is Kind.START and one.key == self.transactional_id]
        own = next(one for one in starts if one.process == self.name)
        # One whose outcome is unknown may have worked.
        others = [one for one in starts if one.status is not Status.OK or one.result > own.result]
        if took_s * 1000 < self._timeout_ms and not others:
            self.history.notice(
                "aborted-early",
                f"{self.name} was shut out ({ErrorCode(code).name}) {took_s:.3f} s after {transaction} began, "
                f"which had {self._timeout_ms / 1000:.1f} s",
            )

    async def _pause(self) -> None:
        await asyncio.sleep(BACKOFF_S * (0.2 + self.cluster.random.random()))

    async def start(self) -> None:
        """Become the one instance; the one before is fenced."""
        operation = self.history.start(self.name, self.transactional_id)
        try:
            await self._initialize(-1, -1)
        except (Fenced, asyncio.CancelledError):
            self.history.unknown(operation, "did not start")
            raise
        self.history.ok(operation, self._identity)

    async def _initialize(self, producer_id: int, producer_epoch: int) -> None:
        request = InitProducerIdRequest(self.transactional_id, self._timeout_ms, producer_id, producer_epoch)
        while True:
            try:
                response = await self.ask(TRANSACTION, self.transactional_id, request)
            except Failed:
                await self._pause()
                continue
            code = response.error_code
            if code == ErrorCode.NONE:
                self._take(response.producer_id, response.producer_epoch)
                return
            if code not in AGAIN:
                raise Fenced(ErrorCode(code).name)
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                self.forget_coordinator(TRANSACTION, self.transactional_id)
            await self._pause()

    def _take(self, producer_id: int, producer_epoch: int) -> None:
        self._identity = producer_id, producer_epoch
        self._sequences.clear()
        self._in_doubt = False

    def begin(self) -> Transaction:
        """What is sent from here on is part of a new transaction."""
        assert self.transaction is None
        self._announced.clear()
        self._has_begun = False
        self.transaction = self.history.begin(self.name, self.transactional_id)
        return self.transaction

    async def send_all(self, batches: dict[tuple[str, int], list[list[Value]]]) -> None:
        """Write batches, at once to all partitions and in order to each; returns when all are acknowledged."""
        places = (self._send_in_order(*place, values) for place, values in batches.items())
        outcomes = await asyncio.gather(*places, return_exceptions=True)
        problems = [one for one in outcomes if isinstance(one, BaseException)]
        for problem in sorted(problems, key=lambda one: isinstance(one, GaveUp)):
            raise problem

    async def _send_in_order(self, topic: str, partition: int, batches: list[list[Value]]) -> None:
        if self.protocol == 1:
            await self._announce(topic, partition)
        for values in batches:
            await self._send(topic, partition, values)

    async def _announce(self, topic: str, partition: int) -> None:
        if (topic, partition) in self._announced:
            return
        self._has_begun = True
        request = AddPartitionsToTxnRequest(
            (), self.transactional_id, *self._identity, [AddPartitionsToTxnTopic(topic, [partition])]
        )
        await self._ask_patiently(
            request,
            lambda response: response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
            TRANSACTION,
            self.transactional_id,
        )
        self._announced.add((topic, partition))

    async def _send(self, topic: str, partition: int, values: list[Value]) -> None:
        assert self.transaction is not None
        self._has_begun = True
        operations = [
            self.history.send_in(self.transaction, f"{topic}-{partition}", value, copy_of) for value, copy_of in values
        ]
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = sequence + len(values)
        request = self._request(topic, partition, [value for value, _ in values], sequence)
        try:
            offset = await self._send_patiently(topic, partition, request, operations)
        except BaseException as problem:
            self._in_doubt = True
            for operation in operations:
                self.history.unknown(operation, str(problem) or type(problem).__name__)
            raise
        for index, operation in enumerate(operations):
            self.history.ok(operation, None if offset is None else offset + index)

    def _request(self, topic: str, partition: int, values: list[str], sequence: int) -> ProduceRequest:
        now_ms = self._now_ms()
        data = build_batch(
            [Record(index, now_ms, None, value.encode()) for index, value in enumerate(values)],
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=sequence,
            transactional=True,
        )
        wanted = TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, data)])
        return ProduceRequest(self.transactional_id, -1, PRODUCE_TIMEOUT_MS, [wanted])

    async def _send_patiently(
        self, topic: str, partition: int, request: ProduceRequest, operations: list[Operation]
    ) -> int | None:
        """Returns the offset, None where it is only known to be there; raises GaveUp or Fenced."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PATIENCE_S
        version = VERSIONS[self.protocol]["ProduceRequest"]
        reason = "no leader is known"
        while loop.time() < until_s:
            address = self.cluster.leader_address(topic, partition)
            if address is None:
                await self.cluster.refresh([topic])
                continue
            if self.cluster.random.random() < self._late_part:
                delay_s = self.cluster.random.uniform(0, LATE_S_MAX)
                self._tasks.append(loop.create_task(self.cluster.deliver_late(address, request, delay_s, version)))
                raise GaveUp("it is on its way for long")
            try:
                response = await self.cluster.call(address, request, version=version)
            except Failed as failed:
                reason = str(failed)
            else:
                answer = response.responses[0].partition_responses[0]
                reason = ErrorCode(answer.error_code).name
                if answer.error_code == ErrorCode.NONE:
                    return answer.base_offset if answer.base_offset >= 0 else None
                if answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    return None
                if answer.error_code in FORGOTTEN:
                    self.history.notice("producer-refused", f"{self.name} {topic}-{partition}: {reason}")
                self._raise_unless_again(answer.error_code)
            for operation in operations:
                operation.attempts += 1
            await self._pause()
            await self.cluster.refresh([topic])
        raise GaveUp(reason)

    async def send_offsets(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commit a group's offsets with the transaction."""
        assert self.transaction is not None
        self._has_begun = True
        if self.protocol == 1 and group not in self._announced:
            request = AddOffsetsToTxnRequest(self.transactional_id, *self._identity, group)
            await self._ask_patiently(request, lambda response: response.error_code, TRANSACTION, self.transactional_id)
            self._announced.add(group)
        operation = self.history.send_offsets(self.transaction, group, offsets)
        rows = [TxnOffsetCommitRequestPartition(*item) for item in offsets.items()]
        try:
            await self._ask_patiently(
                TxnOffsetCommitRequest(
                    self.transactional_id,
                    group,
                    *self._identity,
                    topics=[TxnOffsetCommitRequestTopic(topic, rows)],
                ),
                lambda response: max(row.error_code for row in response.topics[0].partitions),
                GROUP,
                group,
            )
        except BaseException as problem:
            self._in_doubt = True
            self.history.unknown(operation, str(problem) or type(problem).__name__)
            raise
        self.history.ok(operation)

    async def commit(self) -> None:
        """All of it happens; raises Fenced where it may not have."""
        await self._end(commit=True)

    async def abort(self) -> None:
        """Nothing of it happens."""
        assert self.transaction is not None
        if self._has_begun:
            await self._end(commit=False)
        else:
            self.history.ended(self.transaction, Status.FAIL, "never begun")
            self.transaction = None
        if self._in_doubt:
            # Only in version 1: in the other one every end raises the epoch.
            await self._initialize(*self._identity)

    async def _end(self, commit: bool) -> None:
        transaction = self.transaction
        assert transaction is not None
        operation = self.history.end(transaction, commit)
        request = EndTxnRequest(self.transactional_id, *self._identity, commit)
        in_doubt = False
        while True:
            try:
                response = await self.ask(TRANSACTION, self.transactional_id, request)
            except Failed as failed:
                in_doubt |= failed.maybe_done
            else:
                code = response.error_code
                if code == ErrorCode.NONE:
                    if self.protocol > 1:
                        self._take(response.producer_id, response.producer_epoch)
                    self.history.ok(operation)
                    self.history.ended(transaction, Status.OK if commit else Status.FAIL)
                    self.transaction = None
                    return
                if code not in AGAIN:
                    self._check_reason(code)
                    self._refused(transaction, operation, in_doubt, ErrorCode(code).name)
                if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    in_doubt = True
                    self.forget_coordinator(TRANSACTION, self.transactional_id)
            operation.attempts += 1
            await self._pause()

    def _refused(self, transaction: Transaction, operation: Operation, in_doubt: bool, reason: str) -> None:
        """The coordinator does not want to hear of it; an earlier try may have been heard."""
        may_be = in_doubt and operation.value == "commit"
        self.history.ended(transaction, Status.UNKNOWN if may_be else Status.FAIL, reason)
        self.transaction = None
        self.history.unknown(operation, reason)
        raise Fenced(reason)

    def abandon(self) -> None:
        """The process is gone: what it had open is aborted, unless it was about to commit."""
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            fate = Status.UNKNOWN if transaction.commit_asked else Status.FAIL
            self.history.ended(transaction, fate, "abandoned")
