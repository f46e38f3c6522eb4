"""The messages between voters and observers of the metadata log, without their encoding: see Kafka's Vote, Fetch,
FetchSnapshot, BeginQuorumEpoch and EndQuorumEpoch APIs for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from penstock.model.ids import ZERO_UUID, Uuid

NO_NODE = -1


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a log ends: the offset after its last entry, and that entry's epoch."""

    offset: int
    epoch: int

    def is_as_new_as(self, other: LogEnd) -> bool:
        """Whether a replica with this log may lead one with the other."""
        return (self.epoch, self.offset) >= (other.epoch, other.offset)


# The end of a log that is on disk up to there. A fetch acknowledges everything before its offset, so it takes no other.
SyncedEnd = NewType("SyncedEnd", LogEnd)


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A candidate requests a vote; a prospective candidate queries whether it would get it (`pre_vote`)."""

    epoch: int
    candidate_id: int
    log_end: LogEnd
    pre_vote: bool
    directory_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """The answer, with the epoch and leader that the sender knows."""

    epoch: int
    leader_id: int
    granted: bool
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginEpochRequest:
    """A new leader announces itself."""

    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class BeginEpochResponse:
    """The answer, with the epoch and leader that the sender knows."""

    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class EndEpochRequest:
    """A leader resigns; the first successor has the longest log and should become a candidate at once."""

    epoch: int
    leader_id: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EndEpochResponse:
    """The answer, with the epoch and leader that the sender knows."""

    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A follower requests the entries after its log's end, and acknowledges those before it: they are on its disk."""

    epoch: int
    replica_id: int
    log_end: SyncedEnd
    directory_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """The leader's answer. `diverging` is where the follower's log diverges from the leader's.

    The entries themselves travel beside this message; `snapshot` is set if the log does not reach back far enough.
    """

    epoch: int
    leader_id: int
    high_watermark: int = -1
    diverging: LogEnd | None = None
    snapshot: LogEnd | None = None
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A follower requests a part of a snapshot, which travels beside the response."""

    epoch: int
    replica_id: int
    directory_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class SnapshotResponse:
    """The answer, with the epoch and leader that the sender knows."""

    epoch: int
    leader_id: int
    is_refused: bool = False


Request = VoteRequest | BeginEpochRequest | EndEpochRequest | FetchRequest | SnapshotRequest
Response = VoteResponse | BeginEpochResponse | EndEpochResponse | FetchResponse | SnapshotResponse
Message = Request | Response
