"""Writes transaction markers to the partitions that this broker leads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from penstock.core.contract import ProducerIdentity
from penstock.core.replica.producer_state import NO_OFFSET, EndMarker
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.coordinator.groups import OFFSETS_TOPIC, Groups
from penstock.runtime.env import Env
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions

# The markers of one request are answered together: a partition that takes longer gets another request, without the
# others.
COMMIT_TIMEOUT_S = 5.0

# A marker: topic id and partition, leader epoch, producer id and epoch, and commit or abort.
Key = tuple[Uuid, int, int, int, int, EndMarker]
# Writes one partition's marker for a producer id and epoch; completes when it is committed, fails with ApiError.
WriteMarker = Callable[[TopicPartition, int, int, EndMarker], Awaitable[None]]


class MarkerWriter:
    """Appends markers; those in the offsets topic also settle the offsets that the transaction committed."""

    def __init__(self, env: Env, partitions: Partitions, groups: Groups) -> None:
        self._env = env
        self._partitions = partitions
        self._groups = groups
        # Markers that are appended and not committed yet.
        self._waiting: dict[Key, asyncio.Future[None]] = {}

    async def write(self, name: TopicPartition, producer_id: int, producer_epoch: int, marker: EndMarker) -> None:
        """Append one marker; completes when it is committed, fails with ApiError.

        A coordinator that got no answer in time sends it again: while it waits to be committed it is not appended once
        more, unless it would end another transaction by now.
        """
        partition = self._partitions.lookup(name.topic, b"", name.partition, by_id=False)
        links = self._partitions.image.links
        if links.is_mirroring(partition.topic_id):
            # The transaction could write nothing here. A marker would come between the source's batches.
            return
        links.check_writable(partition.topic_id, name, partition.leader_epoch)
        key = partition.topic_id, name.partition, partition.leader_epoch, producer_id, producer_epoch, marker
        state = partition.log.producers.get(producer_id)
        has_transaction = state is not None and state.transaction_first_offset != NO_OFFSET
        committed = None if has_transaction else self._waiting.get(key)
        if committed is None:
            self._partitions.home(partition).check_writable()
            producer = ProducerIdentity(producer_id, producer_epoch)
            committed = self._append(partition, producer, marker)
            if not committed.done():
                self._waiting[key] = committed
                committed.add_done_callback(partial(self._settled, key))
        await asyncio.wait((committed,), timeout=COMMIT_TIMEOUT_S)
        if not committed.done():
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the marker in {name} is not replicated in time")
        committed.result()

    def _append(self, partition: Partition, producer: ProducerIdentity, marker: EndMarker) -> asyncio.Future[None]:
        if partition.name.topic == OFFSETS_TOPIC:
            return self._groups.end_transaction(partition.name.partition, producer, marker)
        appended = partition.append_marker(*producer, marker, self._env.now_ms())
        return partition.committed(appended.next_offset)

    def _settled(self, key: Key, committed: asyncio.Future[None]) -> None:
        if self._waiting.get(key) is committed:
            del self._waiting[key]
