"""What a line needs of a broker, and of time: real ones, and those of the test harness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.app.context import Message
from penstock.app.lines.lane import Partition
from penstock.app.lines.progress import Ranges
from penstock.client.application.errors import PenstockError

# What becomes of a share group's record.
Outcomes = list[tuple[Any, str]]
Position = tuple[int, str]


class Refused(Exception):
    """Messages that no broker takes, and why. They are the fault of the records that they were sent for."""

    def __init__(self, messages: list[tuple[Message, PenstockError]]) -> None:
        super().__init__(f"{len(messages)} messages were refused: {messages[0][1]}")
        self.messages = messages


class Member(Protocol):
    """A member of a group. Everything is called in one thread."""

    def read(self, max_records: int, timeout_s: float) -> list[Any]:
        """Raw messages, as soon as there is one; none after the time. Assignments change in here."""
        ...

    def is_at_end(self) -> bool:
        """Whether everything that is in the partitions now has been read. For tests."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


class Source(Member, Protocol):
    """Records of a consumer group. `revoked` is called in the same thread, before others get its partitions."""

    def open(
        self,
        assigned: Callable[[dict[Partition, Ranges]], None],
        revoked: Callable[[list[Partition]], None],
    ) -> None:
        """Join the group; assigned partitions come with what a predecessor did behind its commit."""
        ...

    def pause(self, paused: bool) -> None:
        """Stop fetching, while staying a member: `read` must go on."""
        ...

    def commit_offsets(self, positions: Mapping[Partition, Position]) -> None:
        """Make durable what is done. Not for exactly once."""
        ...


class ShareLimits(NamedTuple):
    """How often a share group hands out a record, and for how long: then it is given up, or comes back."""

    deliveries_max: int
    lock_s: float


class SharedSource(Member, Protocol):
    """Records of a share group, and the sink of what its handlers send."""

    def open(self) -> None:
        """See that the group has its settings; its partitions are everybody's."""
        ...

    def limits(self) -> ShareLimits:
        """The group's limits, once it is open."""
        ...

    def store(self, messages: Sequence[Message]) -> None:
        """Store messages. Returns when they are durable; raises Refused for those that no broker takes."""
        ...

    def acknowledge(self, outcomes: Outcomes) -> None:
        """What became of the records: accept, release, reject. Returns when it is durable."""
        ...


class Sink(Protocol):
    """Sends messages, at least once or, together with offsets, exactly once. Called in one thread."""

    def send(self, messages: Sequence[Message]) -> None:
        """Send at once, without waiting for acknowledgements. Not for exactly once."""
        ...

    def commit(self, messages: Sequence[Message], positions: Mapping[Partition, Position]) -> None:
        """Store the messages, for exactly once with the positions in one transaction. Returns when they are durable.

        Raises Refused for those that no broker takes, and for those that were given to `send` before. The others are
        stored then, but for exactly once none is.
        """
        ...

    def close(self) -> None:
        """Deliver what is on its way, and close."""
        ...


class Clock:
    """Time as it passes."""

    def now(self) -> float:
        """Seconds."""
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
