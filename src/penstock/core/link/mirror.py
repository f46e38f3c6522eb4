"""One mirror partition as its leader sees it: what to do with the source's answers.

Theory of operation. A mirror begins by comparing its last batch with the source's (`initializing`), and then fetches
from its own end. What the source returns is appended as it is. Where the source's log starts after the mirror's end,
everything here was deleted there, and the mirror starts again at the source's start. A source that ends before the
mirror, or whose batches differ from the mirror's, has lost what was mirrored: the mirror keeps what it has and stops
with a reason (`failed`), and an operator decides. Everything else is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.model.errors import ErrorCode

BACKOFF_FIRST_MS = 100
BACKOFF_MAX_MS = 10_000
# For so long a source that has committed less than the mirror has is put down to a change of its leader.
BEHIND_MAX_MS = 60_000
UNKNOWN = -1


class MirrorPhase(Enum):
    """The states that operators see."""

    INITIALIZING = "initializing"
    MIRRORING = "mirroring"
    PAUSED = "paused"
    PROMOTING = "promoting"
    STOPPED = "stopped"
    FAILED = "failed"


class SourceBatch(NamedTuple):
    """What is compared of a batch: the checksum covers neither its base offset nor its leader epoch."""

    base_offset: int
    last_offset: int
    crc: int
    leader_epoch: int


class Action(Enum):
    """What to do after the source's offsets were looked up."""

    CONTINUE = "continue"
    RESTART = "restart"
    FAIL = "fail"


@dataclass(slots=True)
class MirrorPartition:
    """The state of one mirror partition in one leader epoch."""

    is_verified: bool = False
    failure: str = ""
    # Why the last attempt failed; the next one may succeed.
    problem: str = ""
    failures: int = 0
    retry_ms: int = 0
    source_start: int = UNKNOWN
    source_end: int = UNKNOWN
    # The source's leader epoch of the last batch.
    last_epoch: int = UNKNOWN
    # Since when every answer of the source has had an end before the mirror's.
    behind_since_ms: int = UNKNOWN
    # The promotion for which the source's end was read, and that end.
    promotion_id: int = UNKNOWN
    promotion_end: int = UNKNOWN

    def phase(self, *, is_paused: bool, is_promoting: bool) -> MirrorPhase:
        """The state for people."""
        if self.failure:
            return MirrorPhase.FAILED
        if is_promoting:
            return MirrorPhase.PROMOTING
        if is_paused:
            return MirrorPhase.PAUSED
        return MirrorPhase.MIRRORING if self.is_verified else MirrorPhase.INITIALIZING

    def lag(self, end_offset: int) -> int:
        """How many offsets of the source are missing here; -1 while that is unknown."""
        return UNKNOWN if self.source_end < 0 else max(0, self.source_end - end_offset)

    def fail(self, reason: str) -> None:
        """Nothing more is mirrored in this leader epoch."""
        self.failure = self.failure or reason
        self.promotion_end = UNKNOWN

    def retry(self, reason: str, now_ms: int) -> None:
        """An attempt failed."""
        self.problem, self.behind_since_ms = reason, UNKNOWN
        self.failures += 1
        self.retry_ms = now_ms + min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(self.failures - 1, 10))

    def succeeded(self, source_start: int, source_end: int) -> None:
        """The source answered with its offsets."""
        self.problem, self.failures, self.retry_ms, self.behind_since_ms = "", 0, 0, UNKNOWN
        self.source_start, self.source_end = source_start, source_end

    def compare(self, own: SourceBatch, theirs: SourceBatch | None, *, is_compacted: bool) -> None:
        """The last batch here, and what the source has there: None if it has nothing there any more.

        Compaction removes batches, and records from batches, on either side, which changes their bounds and checksums.
        """
        self.is_verified = True
        if theirs is None:
            return
        if theirs._replace(leader_epoch=own.leader_epoch) == own:
            self.last_epoch = theirs.leader_epoch
        elif not is_compacted:
            self.fail(
                f"the source has another batch at {own.base_offset} than was mirrored: it lost records, or is another "
                "cluster. Fail over to keep what is here, or delete the topic here to mirror it anew"
            )

    def behind(self, source_start: int, source_end: int, end_offset: int, now_ms: int) -> None:
        """The source has committed less than was mirrored.

        A leader that was just elected does not know its high watermark until its followers have fetched.
        """
        since_ms = now_ms if self.behind_since_ms < 0 else self.behind_since_ms
        if now_ms - since_ms >= BEHIND_MAX_MS:
            self.out_of_range(source_start, source_end, end_offset)
            return
        self.retry(f"the source has committed up to {source_end}, and the mirror ends at {end_offset}", now_ms)
        self.behind_since_ms = since_ms

    def out_of_range(self, source_start: int, source_end: int, end_offset: int) -> Action:
        """The source does not have the offset at which the mirror ends.

        If it should, its leader may have refused the epoch of the last batch: that is compared again.
        """
        self.source_start, self.source_end = source_start, source_end
        if source_start > end_offset:
            return Action.RESTART
        if source_end < end_offset:
            self.fail(
                f"the source ends at {source_end}, before {end_offset} where the mirror ends: it lost records. Fail "
                "over to keep what is here, or delete the topic here to mirror it anew"
            )
            return Action.FAIL
        # The last batch can only be compared where the source has it.
        self.is_verified, self.last_epoch = source_start == end_offset, UNKNOWN
        return Action.CONTINUE

    def diverged(self, offset: int) -> None:
        """The source reports that its log differs from what was mirrored."""
        self.fail(
            f"the source's log differs from the mirror's from {offset} on: an unclean election lost records there. "
            "Fail over to keep what is here, or delete the topic here to mirror it anew"
        )

    def read_end_for(self, promotion_id: int, source_end: int) -> None:
        """The source's end, as it was read after this promotion was requested."""
        self.promotion_id, self.promotion_end = promotion_id, source_end
        self.source_end = max(self.source_end, source_end)

    def claimed_end(self, promotion_id: int, end_offset: int, committed_offset: int) -> int:
        """Where this partition may be promoted; -1 while it may not."""
        if self.failure or self.promotion_id != promotion_id or self.promotion_end < 0:
            return UNKNOWN
        if end_offset < self.promotion_end or committed_offset < end_offset or self.source_end > end_offset:
            return UNKNOWN
        return end_offset


def is_lasting(code: int) -> bool:
    """Whether an error of the source does not end by itself: someone has to change rights or settings."""
    return code in (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
