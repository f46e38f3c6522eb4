"""The interfaces of a broker and a clock that runners use: real ones, and those of the test harness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.app.context import Message
from penstock.app.processing.key_queue import Partition
from penstock.app.processing.progress import Ranges
from penstock.client.application.errors import PenstockError

# Messages of a share group with accept, release or reject.
Outcomes = list[tuple[Any, str]]
Position = tuple[int, str]


class RecordRefused(Exception):
    """Messages that brokers refuse, with the errors. The records that they were sent for fail."""

    def __init__(self, messages: list[tuple[Message, PenstockError]]) -> None:
        super().__init__(f"{len(messages)} messages were refused: {messages[0][1]}")
        self.messages = messages


class Member(Protocol):
    """A member of a group. All methods are called in one thread."""

    def read(self, max_records: int, timeout_s: float) -> list[object]:
        """Return raw messages as soon as there is one; none after `timeout_s`. Rebalances happen within this call."""
        ...

    def is_at_end(self) -> bool:
        """Whether everything now in the partitions has been read. For tests."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


class Source(Member, Protocol):
    """Records of a consumer group. `revoked` is called in the same thread, before other members get the partitions."""

    def open(
        self,
        assigned: Callable[[dict[Partition, Ranges]], None],
        revoked: Callable[[list[Partition]], None],
    ) -> None:
        """Join the group; `assigned` gets each partition with the ranges finished past its committed offset."""
        ...

    def pause(self, paused: bool) -> None:
        """Stop fetching, or resume. To remain a member, keep calling `read`."""
        ...

    def commit_offsets(self, positions: Mapping[Partition, Position]) -> None:
        """Commit offsets; returns when they are durable. Not for exactly once, where the sink commits them."""
        ...


class ShareLimits(NamedTuple):
    """How often a share group delivers a record before archiving it, and how long each delivery locks it."""

    deliveries_max: int
    lock_s: float


class SharedSource(Member, Protocol):
    """Records of a share group, and the sink of its handlers' messages."""

    def open(self) -> None:
        """Make sure that the group has its settings. There is no assignment: members share all partitions."""
        ...

    def limits(self) -> ShareLimits:
        """The group's limits, once it is open."""
        ...

    def store(self, messages: Sequence[Message]) -> None:
        """Store messages. Returns when they are durable; raises Refused for those that brokers refuse."""
        ...

    def acknowledge(self, outcomes: Outcomes) -> None:
        """Acknowledge records: accept, release or reject. Returns when that is durable."""
        ...


class Sink(Protocol):
    """Sends messages, at least once or, together with offsets, exactly once. Called in one thread."""

    def send(self, messages: Sequence[Message]) -> None:
        """Send at once, without waiting for acknowledgements. Not for exactly once."""
        ...

    def commit(self, messages: Sequence[Message], positions: Mapping[Partition, Position]) -> None:
        """Store the messages, for exactly once with the positions in one transaction. Returns when they are durable.

        Raises Refused for messages that brokers refuse, including those given to `send` before. The others are stored
        then; for exactly once, none is.
        """
        ...

    def close(self) -> None:
        """Deliver messages in flight, and close."""
        ...


class Clock:
    """Real time."""

    def now(self) -> float:
        """Monotonic seconds."""
        return asyncio.get_running_loop().time()

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        """Wait for an event, or until a time."""
        if until is None:
            await event.wait()
            return
        try:
            async with asyncio.timeout_at(until):
                await event.wait()
        except TimeoutError:
            pass
