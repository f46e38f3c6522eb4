"""Where the state of share-partitions is kept: whoever asks need not know which broker coordinates it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.core.share.runs import NO_DELAYS, Delays, StateBatch
from penstock.core.share.state import NO_COUNT, NO_OFFSET
from penstock.model.ids import Uuid

__all__ = ["NO_COUNT", "NO_OFFSET", "Persister", "StoredState", "Summary"]


class StoredState(NamedTuple):
    """What is kept of a share-partition. Without any the epoch is 0 and the start NO_OFFSET.

    Whoever has read it numbers its writes from above `write_number`.
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


class Persister(Protocol):
    """Each call ends when the state is durable, and raises ApiError when it cannot be had or changed.

    What may pass (a coordinator that moves or is being loaded) is retried inside; callers need not.
    """

    async def initialize(self, group: str, topic_id: Uuid, partition: int, state_epoch: int, start_offset: int) -> None:
        """Begin, or begin again with a higher state epoch, at `start_offset`."""

    async def read(self, group: str, topic_id: Uuid, partition: int, leader_epoch: int) -> StoredState:
        """The state, for the broker that leads the partition in `leader_epoch`: earlier leaders are fenced off."""

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

    async def read_summary(self, group: str, topic_id: Uuid, partition: int) -> Summary:
        """The start offset and how much is finished; a start of NO_OFFSET when nothing is kept."""

    async def delete(self, group: str, topic_id: Uuid, partition: int) -> None:
        """Forget it; nothing happens when there is nothing."""
