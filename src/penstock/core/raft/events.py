"""The events that go into the quorum's state machine, and the effects that come out of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.core.raft.messages import NO_NODE, LogEnd, Message
from penstock.core.raft.voters import VoterSet
from penstock.model.ids import ZERO_UUID, Uuid


class Contradiction(Exception):
    """A peer's claims contradict this log: committed history would change. Most likely a disk was replaced."""


class Role(Enum):
    """The state of this voter in the current epoch."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    LEADER = "leader"
    RESIGNED = "resigned"


@dataclass(frozen=True, slots=True)
class Election:
    """What must survive a crash, as in Kafka's quorum-state file."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class QuorumTimes:
    """Kafka's controller.quorum.* times, in milliseconds."""

    election_ms: int = 1_000
    fetch_ms: int = 2_000
    backoff_max_ms: int = 1_000
    request_ms: int = 2_000
    retry_ms: int = 20

    @property
    def vote_request_ms(self) -> int:
        """How long to wait for a vote: a later answer is useless, because the election is over."""
        return min(self.request_ms, self.election_ms)

    @property
    def fetch_request_ms(self) -> int:
        """How long to wait for a fetch response: a leader that is silent for `fetch_ms` is considered dead."""
        return min(self.request_ms, self.fetch_ms)

    @property
    def check_quorum_ms(self) -> int:
        """How long a leader carries on without a majority: longer than the fetch timeout of a live follower."""
        return self.fetch_ms * 3 // 2


class LogView(Protocol):
    """What the core reads from the log."""

    def end(self) -> LogEnd:
        """Where the log ends."""

    def synced_offset(self) -> int:
        """Everything before this offset is on disk; at most where the log ends."""

    def end_of_epoch(self, epoch: int) -> LogEnd:
        """Where the largest epoch at or below this one ended; `start` when the log has none."""

    def start(self) -> LogEnd:
        """Where the log starts: the end of a snapshot, or zero."""

    def snapshot(self) -> LogEnd:
        """Where the newest snapshot ends: where a replica that is behind `start` has to begin."""


class Randomness(Protocol):
    """The randomness that keeps candidates from starting elections at the same time."""

    def randrange(self, start: int, stop: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Started:
    """The log is open."""


@dataclass(frozen=True, slots=True)
class Tick:
    """`deadline_ms` may have passed."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message from a peer; requests are answered in the effects' `reply`."""

    sender_id: int
    message: Message


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request from `send` failed: its connection broke, or none could be opened."""

    peer_id: int
    message: Message


@dataclass(frozen=True, slots=True)
class EntriesAppended:
    """The entries of the last FetchResponse are in the log; the leader has committed up to `high_watermark`."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class FetchNext:
    """The entries of the last FetchResponse are in the log, or the log is synced: a follower continues."""


@dataclass(frozen=True, slots=True)
class Synced:
    """More of the log may be on this voter's disk."""


@dataclass(frozen=True, slots=True)
class VotersChanged:
    """The set of voters changed: a new one was appended or fetched, or the latest one was truncated."""

    voters: VoterSet


@dataclass(frozen=True, slots=True)
class Stopping:
    """A leader resigns; `for_good` when the voter stops and must not lead again."""

    for_good: bool = True


Event = Started | Tick | Received | RequestFailed | EntriesAppended | FetchNext | Synced | VotersChanged | Stopping


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The control record that starts an epoch."""

    epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting: tuple[int, ...]


@dataclass(slots=True)
class Effects:
    """What the driver must do, in the order of the fields. The response to each request in `send` comes as an event."""

    persist: Election | None = None
    truncate_to: int | None = None
    append: LeaderChange | None = None
    take_entries: bool = False
    fetch_snapshot: LogEnd | None = None
    # Sync the log, and then step `FetchNext`.
    sync: bool = False
    reply: Message | None = None
    send: tuple[tuple[int, Message], ...] = ()
    committed: int | None = None
