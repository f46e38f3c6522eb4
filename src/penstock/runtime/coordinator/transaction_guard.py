"""Verifies writes in transactions: queries the coordinator whether their partition is part of it (KIP-890).

Only the first write to a partition in a transaction has to wait for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.core.contract import ProducerIdentity
from penstock.core.replica.postponed import RequestedPartition
from penstock.core.replica.producer_state import Verification
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.coordinator.transaction_verifier import Verify
from penstock.runtime.env import Env
from penstock.runtime.replication.admission import Produced, Refusals
from penstock.wire.records import HEADER_SIZE, read_header

# From this version of Produce on a write adds its partition to the transaction.
ADDS_SINCE = 12
ABORTABLE_SINCE = 11
_COME_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Unverified(NamedTuple):
    """A batch that would start a transaction in its partition."""

    place: RequestedPartition
    partition: TopicPartition
    producer: ProducerIdentity
    verification: Verification


class TransactionGuard:
    """Finds batches that would start a transaction. `is_required` is transaction.partition.verification.enable."""

    def __init__(self, env: Env, verify: Verify, is_required: Callable[[], bool]) -> None:
        self._env = env
        self._verify = verify
        self.is_required = is_required

    def unverified(self, batches: Iterable[Produced], api_version: int) -> list[Unverified]:
        """The batches that must be verified; each partition expects its token from now on."""
        adds = api_version >= ADDS_SINCE
        found: list[Unverified] = []
        if not adds and not self.is_required():
            return found
        now_ms = self._env.now_ms()
        for place, partition, records in batches:
            if len(records) < HEADER_SIZE:
                continue
            try:
                header = read_header(records)
            except ApiError:
                # Invalid batches are rejected when they are appended.
                continue
            if not header.is_transactional or header.producer_id < 0:
                continue
            verification = partition.begin_verification(header, now_ms, bumps_epoch=adds)
            if verification is not None:
                producer = ProducerIdentity(header.producer_id, header.producer_epoch)
                found.append(Unverified(place, partition.name, producer, verification))
        return found

    async def verify(self, transactional_id: str, unverified: Sequence[Unverified], api_version: int) -> Refusals:
        """Ask the coordinator; batches that it does not confirm must not be appended."""
        adds = api_version >= ADDS_SINCE
        answers = await asyncio.gather(
            *(self._verify(transactional_id, one.producer, one.partition, adds) for one in unverified)
        )
        return {
            one.place: ApiError(
                _error_for_producer(error, api_version),
                "the partition could not be verified as part of the transaction",
            )
            for one, error in zip(unverified, answers, strict=True)
            if error is not ErrorCode.NONE
        }


def _error_for_producer(error: ErrorCode, version: int) -> ErrorCode:
    """The coordinator's error as a producer must see it: errors that are not its fault are retriable."""
    if error in _COME_AGAIN:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return error
