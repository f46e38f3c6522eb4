"""How a coordinator core and the shell around it talk.

A request comes with a token. The core answers with `Effects`: records to append to the coordinator's partition, replies
by token, and timers to set. A reply may come at once, or with a later event: a JoinGroup is answered when the whole
rebalance is, so one event can answer many tokens.

The shell calls `replay` with each of the records at once, in order, which is the only thing that changes durable state.
It appends them at the end of the loop's turn, with those of other events, and sends the replies once they are
committed. If the append fails, the shell drops the whole shard and loads it again, so the core need not undo anything.

Soft state (which requests are parked in a rebalance, session deadlines) lives in the core and is not replayed: a
coordinator that takes over starts with none of it, and members that are still alive rejoin on their own.

Records of one event may be part of a producer's transaction (`Effects.producer`). The shell then appends them first,
in a transactional batch of that producer, which the log may reject, and replays them with its id: they take effect when
the transaction's marker does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Token = Hashable
TimerKey = tuple[str, ...]


class Caller(NamedTuple):
    """Who sent a request. `host` is the peer's address as Kafka shows it, such as /127.0.0.1."""

    client_id: str
    host: str
    api_version: int
    # Whether it may know that a topic exists; None where every client may know of every topic.
    may_describe: Callable[[str], bool] | None = None
    # The names that the right to this one gives, for limits of what is kept under all of them; None without limits.
    widest_prefix: Callable[[], str | None] | None = None


class Record(NamedTuple):
    """One record of the coordinator's log, as messages. A `value` of None is a tombstone."""

    key: Any
    value: Any
    value_version: int = 0


class ProducerIdentity(NamedTuple):
    """A transactional producer, in one of its epochs."""

    producer_id: int
    producer_epoch: int


class Reply(NamedTuple):
    """The answer to the request that came with `token`."""

    token: Token
    response: object


class Timer(NamedTuple):
    """Have `timer_fired(key)` called at `deadline_ms`; a later Timer with the same key replaces it, None cancels it.

    The deadline is on the clock whose time came with the event, but the shell waits on a monotonic clock: a timer that
    fires is due, whatever time is passed along with it.
    """

    key: TimerKey
    deadline_ms: int | None


@dataclass(slots=True)
class Effects:
    """What the shell must do: append, then reply; and set the timers."""

    records: list[Record] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    # The producer whose transaction all of the records are part of; None for ordinary records.
    producer: ProducerIdentity | None = None

    def merge(self, other: Effects) -> None:
        """Append another event's effects after our own."""
        assert other is not self
        assert self.producer is None or not other.records, "records of a transaction are not mixed with others"
        assert other.producer is None or not self.records, "records of a transaction are not mixed with others"
        self.producer = self.producer or other.producer
        self.records += other.records
        self.replies += other.replies
        self.timers += other.timers
