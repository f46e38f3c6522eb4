"""Where the state of share-partitions is kept: callers need not know which broker coordinates it.

The persister finds a share-partition's coordinator, here or on another broker, and calls it.
What may pass is tried again until `share.coordinator.write.timeout.ms` is over: a coordinator that moves or is being
loaded, a connection that breaks. A write that is repeated changes nothing the second time, and one that arrives after
a later one of the same leader is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from penstock.core.backoff import Backoff
from penstock.core.metadata.image import PartitionState
from penstock.core.share.runs import NO_DELAYS, Delays, StateBatch
from penstock.core.share.state import NO_COUNT, NO_EPOCH, ShareKey
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import NO_LEADER, Uuid
from penstock.runtime.brokers import Brokers
from penstock.runtime.env import Env
from penstock.runtime.peer import PeerLost, PeerUnsupported
from penstock.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

RETRY_MIN_MS = 20
RETRY_MAX_MS = 1_000
_PASSING = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)


class StoredState(NamedTuple):
    """What is kept of a share-partition. Without any the epoch is 0 and the start NO_OFFSET.

    The leader that has read it numbers its writes from above `write_number`.
    """

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    delays: Delays = NO_DELAYS
    write_number: int = 0


class Summary(NamedTuple):
    """A share-partition in numbers; `finished_count` counts records from `start_offset` on, or is NO_COUNT."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    finished_count: int = NO_COUNT


class Persister:
    """Each call ends when the state is durable, and raises ApiError when it cannot be had or changed.

    What may pass (a coordinator that moves or is being loaded) is retried inside; callers need not. `leader_of` finds
    the partition of a coordinator key.
    """

    def __init__(
        self,
        env: Env,
        brokers: Brokers,
        leader_of: Callable[[str], Awaitable[PartitionState]],
        timeout_ms: int,
    ) -> None:
        self._env = env
        self._brokers = brokers
        self._leader_of = leader_of
        self._timeout_ms = timeout_ms

    async def initialize(self, group: str, topic_id: Uuid, partition: int, state_epoch: int, start_offset: int) -> None:
        """Begin, or begin again with a higher state epoch, at `start_offset`."""
        row = initialize_share_group_state.PartitionData(partition, state_epoch, start_offset)
        topic = initialize_share_group_state.InitializeStateData(topic_id, [row])
        request = initialize_share_group_state.InitializeShareGroupStateRequest(group, [topic])
        await self._ask(ShareKey(group, topic_id, partition), request)

    async def read(self, group: str, topic_id: Uuid, partition: int, leader_epoch: int) -> StoredState:
        """The state, for the broker that leads the partition in `leader_epoch`: earlier leaders are fenced off."""
        row = read_share_group_state.PartitionData(partition, leader_epoch)
        topic = read_share_group_state.ReadStateData(topic_id, [row])
        request = read_share_group_state.ReadShareGroupStateRequest(group, [topic])
        found: read_share_group_state.PartitionResult = await self._ask(ShareKey(group, topic_id, partition), request)
        batches = tuple(StateBatch(*batch) for batch in found.state_batches)
        delays = Delays(found.delays_start, found.delays_due_ms, found.delays_offset)
        return StoredState(found.state_epoch, found.start_offset, batches, delays, found.write_number)

    async def write(
        self,
        group: str,
        topic_id: Uuid,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        finished_count: int,
        batches: Sequence[StateBatch],
        delays: Delays,
        write_number: int,
    ) -> None:
        """Change the state of some records; FENCED_STATE_EPOCH and FENCED_LEADER_EPOCH end the caller's part."""
        row = write_share_group_state.PartitionData(
            partition,
            state_epoch,
            leader_epoch,
            start_offset,
            finished_count,
            [write_share_group_state.StateBatch(*batch) for batch in batches],
            *delays,
            write_number,
        )
        topic = write_share_group_state.WriteStateData(topic_id, [row])
        request = write_share_group_state.WriteShareGroupStateRequest(group, [topic])
        await self._ask(ShareKey(group, topic_id, partition), request)

    async def read_summary(self, group: str, topic_id: Uuid, partition: int) -> Summary:
        """The start offset and how much is finished; a start of NO_OFFSET when nothing is kept."""
        row = read_share_group_state_summary.PartitionData(partition, NO_EPOCH)
        topic = read_share_group_state_summary.ReadStateSummaryData(topic_id, [row])
        request = read_share_group_state_summary.ReadShareGroupStateSummaryRequest(group, [topic])
        found: read_share_group_state_summary.PartitionResult = await self._ask(
            ShareKey(group, topic_id, partition), request
        )
        return Summary(found.state_epoch, found.leader_epoch, found.start_offset, found.delivery_complete_count)

    async def delete(self, group: str, topic_id: Uuid, partition: int, state_epoch: int) -> None:
        """Forget it; nothing happens when there is nothing. FENCED_STATE_EPOCH if it has begun anew meanwhile."""
        row = delete_share_group_state.PartitionData(partition, state_epoch)
        topic = delete_share_group_state.DeleteStateData(topic_id, [row])
        request = delete_share_group_state.DeleteShareGroupStateRequest(group, [topic])
        await self._ask(ShareKey(group, topic_id, partition), request)

    async def _ask(self, key: ShareKey, request: Any) -> Any:
        """The row of the response; raises ApiError with the row's error."""
        deadline_ms = self._env.monotonic_ms() + self._timeout_ms
        backoff = Backoff(RETRY_MIN_MS, RETRY_MAX_MS)
        while True:
            try:
                response = await self._ask_once(key, request)
                row = response.results[0].partitions[0]
                error = ApiError(ErrorCode(row.error_code), row.error_message or "the share coordinator refused")
                if error.code is ErrorCode.NONE:
                    return row
            except ApiError as failure:
                error = failure
            except PeerUnsupported as failure:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, str(failure)) from failure
            except PeerLost as failure:
                error = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(failure))
            pause_ms = backoff.failed()
            if error.code not in _PASSING or self._env.monotonic_ms() + pause_ms > deadline_ms:
                raise error
            await asyncio.sleep(pause_ms / 1000)

    async def _ask_once(self, key: ShareKey, request: Any) -> Any:
        state = await self._leader_of(key.coordinator_key)
        if state.leader == NO_LEADER:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the share coordinator's partition has no leader")
        return await self._brokers.ask(state.leader, request, timeout_ms=self._timeout_ms)
