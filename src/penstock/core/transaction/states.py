"""The states of a transactional id, and which of them may follow which.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit
                │ ▲                              │
                │ └──────────────────────────────┤
                └──────► PrepareAbort ──► CompleteAbort

A prepared transaction is decided: its record is committed before any partition gets a marker, and from then on it can
only be completed, by this coordinator or by the next. A producer of transaction version 2 may also abort without an
open transaction, since it cannot know whether its first write arrived. InitProducerId leads back to Empty.

PrepareEpochFence and Dead are intermediate steps that are never written; they are here because Kafka numbers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class TransactionState(IntEnum):
    """The numbers are those of the coordinator's log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that Kafka's tools show."""
        return _TITLES[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, but its markers are not all written yet."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether there is no transaction."""
        return self in _IDLE


_TITLES = {state: state.name.title().replace("_", "") for state in TransactionState}
BY_TITLE: Mapping[str, TransactionState] = {title: state for state, title in _TITLES.items()}

_IDLE = frozenset((TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))

# The possible predecessors of each state.
PREVIOUS: Mapping[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: _IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset((TransactionState.ONGOING,)),
    TransactionState.PREPARE_ABORT: _IDLE | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: frozenset((TransactionState.PREPARE_COMMIT,)),
    TransactionState.COMPLETE_ABORT: frozenset((TransactionState.PREPARE_ABORT,)),
    TransactionState.DEAD: _IDLE,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset((TransactionState.ONGOING,)),
}
