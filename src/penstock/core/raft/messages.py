"""What voters and observers of the metadata log say to each other, without the bytes: see Kafka's Vote, Fetch,
FetchSnapshot, BeginQuorumEpoch and EndQuorumEpoch APIs for those.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.ids import ZERO_UUID, Uuid

NOBODY = -1


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a log ends: the offset after its last entry, and that entry's epoch."""

    offset: int
    epoch: int

    def is_as_new_as(self, other: LogEnd) -> bool:
        """Whether somebody with this log may lead somebody with the other."""
        return (self.epoch, self.offset) >= (other.epoch, other.offset)


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A candidate asks for a vote; a prospective one asks what the answer would be (`pre_vote`)."""

    epoch: int
    candidate_id: int
    log_end: LogEnd
    pre_vote: bool
    directory_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """The answer, with what the answerer knows about epoch and leader."""

    epoch: int
    leader_id: int
    granted: bool
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginEpochRequest:
    """A new leader makes itself known."""

    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class BeginEpochResponse:
    """The answer, with what the answerer knows about epoch and leader."""

    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class EndEpochRequest:
    """A leader resigns; the voter named first has the longest log and should stand at once."""

    epoch: int
    leader_id: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EndEpochResponse:
    """The answer, with what the answerer knows about epoch and leader."""

    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A follower asks for what comes after its log, and so tells the leader how far it is."""

    epoch: int
    replica_id: int
    log_end: LogEnd
    directory_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """What the leader answers. `diverging` is where the follower's history leaves the leader's.

    The entries themselves go beside this message; `snapshot` says that the log no longer reaches back that far.
    """

    epoch: int
    leader_id: int
    high_watermark: int = -1
    diverging: LogEnd | None = None
    snapshot: LogEnd | None = None
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A follower asks for a piece of a snapshot; the piece goes beside the response."""

    epoch: int
    replica_id: int
    directory_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class SnapshotResponse:
    """The answer, with what the answerer knows about epoch and leader."""

    epoch: int
    leader_id: int
    is_refused: bool = False


Request = VoteRequest | BeginEpochRequest | EndEpochRequest | FetchRequest | SnapshotRequest
Response = VoteResponse | BeginEpochResponse | EndEpochResponse | FetchResponse | SnapshotResponse
Message = Request | Response
