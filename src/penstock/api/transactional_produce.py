"""What stands before a write in a transaction: its coordinator says whether the partition is part of it (KIP-890).

Only the first write to a partition is held up, and those of the same producer that come while it waits, since batches
must arrive in the order of their sequences.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from penstock.core.contract import ProducerIdentity
from penstock.core.replica.producer_state import NOT_REQUIRED, Verification
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.verifier import Verify
from penstock.runtime.env import Env
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.produce import ProduceRequest
from penstock.wire.records import HEADER_SIZE, BatchHeader, read_header

TOPIC_IDS_SINCE = 13
# From this version on a partition joins the transaction by being written to.
ADDS_SINCE = 12
ABORTABLE_SINCE = 11
_COME_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

T = TypeVar("T")
# A partition as a request names it: topic, topic id, index.
Place = tuple[str, bytes, int]


class Admission(NamedTuple):
    """What is known of a request's partitions before anything is appended."""

    errors: Mapping[Place, ErrorCode]
    verifications: Mapping[Place, Verification]
    is_required: bool

    def verification(self, place: Place) -> Verification | None:
        """The token to append with."""
        return self.verifications.get(place) if self.is_required else NOT_REQUIRED


class Unverified(NamedTuple):
    """A batch that would begin a transaction in its partition."""

    place: Place
    partition: Partition
    header: BatchHeader
    verification: Verification


class TransactionalProduce:
    """Lets writes through. `is_required` is transaction.partition.verification.enable."""

    def __init__(self, env: Env, partitions: Partitions, verify: Verify, is_required: Callable[[], bool]) -> None:
        self._env = env
        self._partitions = partitions
        self._verify = verify
        self._is_required = is_required
        # By producer id, the last request that waits; done when its batches are appended.
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def admit(self, request: ProduceRequest, api_version: int, append: Callable[[Admission], T]) -> T | Awaitable[T]:
        """Call `append`, now where nothing stands in the way, else in its turn."""
        adds = api_version >= ADDS_SINCE
        required = self._is_required()
        batches = [*self._batches(request, api_version)]
        unverified = [*self._unverified(batches, adds)] if required or adds else []
        producer_id = batches[0][2].producer_id if batches else -1
        if not unverified and producer_id not in self._waiting:
            return append(Admission({}, {}, required))
        return self._in_turn(producer_id, request.transactional_id or "", unverified, api_version, required, append)

    async def _in_turn(
        self,
        producer_id: int,
        transactional_id: str,
        unverified: list[Unverified],
        api_version: int,
        required: bool,
        append: Callable[[Admission], T],
    ) -> T:
        before = self._waiting.get(producer_id)
        appended = self._waiting[producer_id] = asyncio.get_running_loop().create_future()
        try:
            answers = await asyncio.gather(
                *(
                    self._verify(
                        transactional_id,
                        ProducerIdentity(one.header.producer_id, one.header.producer_epoch),
                        one.partition.name,
                        api_version >= ADDS_SINCE,
                    )
                    for one in unverified
                )
            )
            if before is not None:
                await before
            errors = {
                one.place: _told(error, api_version)
                for one, error in zip(unverified, answers, strict=True)
                if error is not ErrorCode.NONE
            }
            return append(Admission(errors, {one.place: one.verification for one in unverified}, required))
        finally:
            appended.set_result(None)
            if self._waiting.get(producer_id) is appended:
                del self._waiting[producer_id]

    def _batches(self, request: ProduceRequest, api_version: int) -> Iterator[tuple[Place, Partition, BatchHeader]]:
        """The batches that can be looked at; what is wrong with others is found out when they are to be appended."""
        by_id = api_version >= TOPIC_IDS_SINCE
        for topic in request.topic_data:
            for data in topic.partition_data:
                records = data.records
                if not records or len(records) < HEADER_SIZE:
                    continue
                try:
                    partition = self._partitions.lookup(topic.name, topic.topic_id, data.index, by_id=by_id)
                    header = read_header(records)
                except ApiError:
                    continue
                if header.is_transactional and header.producer_id >= 0:
                    yield (topic.name, topic.topic_id, data.index), partition, header

    def _unverified(self, batches: list[tuple[Place, Partition, BatchHeader]], adds: bool) -> Iterator[Unverified]:
        now_ms = self._env.now_ms()
        for place, partition, header in batches:
            verification = partition.begin_verification(header, now_ms, bumps_epoch=adds)
            if verification is not None:
                yield Unverified(place, partition, header, verification)


def _told(error: ErrorCode, version: int) -> ErrorCode:
    """What a coordinator said, as producers know it: they come again with what is not their fault."""
    if error in _COME_AGAIN:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return error
