"""Writes transaction markers to the partitions that this broker leads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.core.contract import ProducerIdentity
from penstock.core.replica.producer_state import EndMarker
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.coordinator.groups import OFFSETS_TOPIC, Groups
from penstock.runtime.env import Env
from penstock.runtime.replication.partitions import Partitions

# The markers of one request are answered together: a partition that takes longer is asked again, without the others.
COMMIT_TIMEOUT_S = 5.0

# Writes one partition's marker for a producer id and epoch; completes when it is committed, fails with ApiError.
WriteMarker = Callable[[TopicPartition, int, int, EndMarker], Awaitable[None]]


class MarkerWriter:
    """Appends markers; those in the offsets topic also settle the offsets that the transaction committed."""

    def __init__(self, env: Env, partitions: Partitions, groups: Groups) -> None:
        self._env = env
        self._partitions = partitions
        self._groups = groups

    async def write(self, name: TopicPartition, producer_id: int, producer_epoch: int, marker: EndMarker) -> None:
        """Append one marker; completes when it is committed, fails with ApiError."""
        partition = self._partitions.lookup(name.topic, b"", name.partition, by_id=False)
        self._partitions.home(partition).check_writable()
        if name.topic == OFFSETS_TOPIC:
            producer = ProducerIdentity(producer_id, producer_epoch)
            committed = self._groups.end_transaction(name.partition, producer, marker)
        else:
            appended = partition.append_marker(producer_id, producer_epoch, marker, self._env.now_ms())
            committed = partition.committed(appended.next_offset)
        await asyncio.wait((committed,), timeout=COMMIT_TIMEOUT_S)
        if not committed.done():
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the marker in {name} is not replicated in time")
        committed.result()
