"""The quorum's state machine: who leads the metadata log, in which epoch, and how far it is committed.

Theory of operation. `step(event, now_ms)` changes the state and returns `Effects`. The driver carries them out in one
order only: `persist` reaches the disk, then `append` is written, then `committed` is applied. A vote or an entry that
is not on disk counts for nothing, so `Synced` is the only event that moves the high watermark.

A quorum of one elects itself at once: it bumps the epoch, votes for itself, and opens the epoch with a LeaderChange
record. Elections among several voters extend the same states and events.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """What this voter is in the current epoch."""

    UNATTACHED = "unattached"
    LEADER = "leader"
    RESIGNED = "resigned"


@dataclass(frozen=True, slots=True)
class Election:
    """What must survive a crash: Kafka's quorum-state file."""

    epoch: int = 0
    leader_id: int = -1
    voted_id: int = -1


@dataclass(frozen=True, slots=True)
class Started:
    """The log is open and ends before `log_end_offset`, whose last entry belongs to `last_epoch`."""

    log_end_offset: int
    last_epoch: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The leader's log now ends before `log_end_offset`."""

    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Synced:
    """Everything before `offset` is on this voter's disk."""

    offset: int


@dataclass(frozen=True, slots=True)
class Stopping:
    """This voter is about to leave; it leads nothing from now on."""


Event = Started | Appended | Synced | Stopping


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The control record that opens an epoch."""

    epoch: int
    leader_id: int
    voters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Effects:
    """What the driver must do, in the order of the fields."""

    persist: Election | None = None
    append: LeaderChange | None = None
    committed: int | None = None


NOTHING = Effects()


class Quorum:
    """One voter's view of the quorum."""

    __slots__ = ("_log_end_offset", "_synced", "election", "high_watermark", "node_id", "role", "voters")

    def __init__(self, node_id: int, voters: tuple[int, ...], election: Election) -> None:
        assert node_id in voters, "an observer has no quorum state of its own"
        self.node_id = node_id
        self.voters = voters
        self.election = election
        self.role = Role.UNATTACHED
        self.high_watermark = 0
        self._log_end_offset = 0
        self._synced = 0

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self.election.epoch

    def step(self, event: Event, now_ms: int) -> Effects:
        """Take one event; returns what must be done about it."""
        del now_ms  # A quorum of one has no timers.
        match event:
            case Started(log_end_offset, last_epoch):
                return self._stand(log_end_offset, last_epoch)
            case Appended(log_end_offset):
                assert log_end_offset >= self._log_end_offset, "a leader's log never shrinks"
                self._log_end_offset = log_end_offset
                return NOTHING
            case Synced(offset):
                return self._advance(offset)
            case Stopping():
                self.role = Role.RESIGNED
                return NOTHING

    def _stand(self, log_end_offset: int, last_epoch: int) -> Effects:
        assert self.role is Role.UNATTACHED, "a voter starts once"
        assert last_epoch <= self.election.epoch, "the log is ahead of the epoch this voter remembers"
        self._log_end_offset = self._synced = log_end_offset
        if len(self.voters) > 1:
            raise NotImplementedError("a quorum of several voters")
        self.election = Election(self.election.epoch + 1, self.node_id, self.node_id)
        self.role = Role.LEADER
        change = LeaderChange(self.election.epoch, self.node_id, self.voters)
        return Effects(persist=self.election, append=change)

    def _advance(self, offset: int) -> Effects:
        assert offset <= self._log_end_offset, "nothing past the end can be on disk"
        self._synced = max(self._synced, offset)
        if self.role is not Role.LEADER or self._synced <= self.high_watermark:
            return NOTHING
        self.high_watermark = self._synced
        return Effects(committed=self.high_watermark)
