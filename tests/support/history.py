"""What clients did and saw, and the anomalies in it.

A `History` is written by the clients of a test, in the simulator or against real processes. `check` (in
`support.history_checks`) then names every anomaly. Times are those of any clock, as long as they rise.

An operation is open until it is known to have worked (`ok`), to have had no effect (`fail`), or until no client will
ever know (`unknown`). One that was tried more than once may take effect after it was answered: a delayed copy of an
earlier try can still arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Status(Enum):
    """What is known of an operation."""

    OPEN = "open"
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Kind(Enum):
    """What was tried."""

    SEND = "send"
    START = "start"
    END = "end"
    SEND_OFFSETS = "send offsets"
    COMMIT = "commit"
    FETCH_COMMITTED = "fetch committed"
    CHANGE = "change"
    LOOK = "look"


@dataclass(slots=True, eq=False)
class Transaction:
    """What a producer means to happen as a whole. Its status is `OK` for committed and `FAIL` for aborted.

    It is aborted for sure where its commit was never requested, and of unknown outcome where the answer to that is.
    """

    process: str
    transactional_id: str
    began: float
    sends: list[Operation] = field(default_factory=list)
    # Partition, offset and value of what was read in it.
    reads: list[tuple[str, int, str]] = field(default_factory=list)
    status: Status = Status.OPEN
    commit_asked: bool = False
    reason: str = ""

    def __str__(self) -> str:
        wrote = ", ".join(f"{one.key} {one.value!r}" for one in self.sends)
        return (
            f"transaction of {self.transactional_id} by {self.process} [{self.began:.3f}] {self.status.value} "
            f"{self.reason}: wrote {wrote or 'nothing'}"
        )


@dataclass(slots=True, eq=False)
class Operation:
    """One attempt to do or learn something. `key` is the partition, group and partition, or thing that was changed.

    For starts of transactional producers and ends of transactions it is the transactional id.
    """

    kind: Kind
    process: str
    key: str
    value: Any
    invoked: float
    attempts: int = 1
    status: Status = Status.OPEN
    completed: float | None = None
    # An offset for sends (None where the broker only said that it has the record), what was read for reads.
    result: Any = None
    reason: str = ""
    transaction: Transaction | None = None
    # The partition and offset of the record that this one is a copy of.
    copy_of: tuple[str, int] | None = None
    # What compaction goes by.
    record_key: str | None = None
    # Whether it deletes what its key has.
    is_tombstone: bool = False

    @property
    def is_acknowledged(self) -> bool:
        """It worked, and so did the transaction that it is part of."""
        return self.status is Status.OK and (self.transaction is None or self.transaction.status is Status.OK)

    def __str__(self) -> str:
        until = "…" if self.completed is None else f"{self.completed:.3f}"
        result = "" if self.result is None else f" -> {self.result}"
        return (
            f"[{self.invoked:.3f}-{until}] {self.process} {self.kind.value} {self.key} {self.value!r} "
            f"{self.status.value}{result}{' ' + self.reason if self.reason else ''}"
        )


@dataclass(frozen=True, slots=True)
class Poll:
    """Records of one partition that a consumer got at once; `resumed` where it began or was moved before this."""

    process: str
    partition: str
    time: float
    records: tuple[tuple[int, str], ...]
    resumed: bool


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that must not happen."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class History:
    """Everything that happened, in the order in which it was noted."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.operations: list[Operation] = []
        self.polls: list[Poll] = []
        # By partition, all records as they were read at the very end, by offset.
        self.finals: dict[str, dict[int, str]] = {}
        self.noticed: list[Anomaly] = []
        self.transactions: list[Transaction] = []
        # Partitions each of whose records is to be copied, and the ones that the copies go to.
        self.copied: tuple[list[str], list[str]] = ([], [])
        # Partitions of which only the latest record of each key must be there.
        self.compacted: set[str] = set()
        # By partition, where it starts in the end, and up to where its records were asked to be deleted.
        self.starts: dict[str, int] = {}
        self.trimmed: dict[str, int] = {}
        self._moved: dict[tuple[str, str], bool] = {}

    def now(self) -> float:
        """The clock's time."""
        return self._clock()

    def send(self, process: str, partition: str, value: str, record_key: str | None = None) -> Operation:
        """A record is on its way."""
        operation = self._invoke(Kind.SEND, process, partition, value)
        operation.record_key = record_key
        return operation

    def start(self, process: str, transactional_id: str) -> Operation:
        """A producer is about to be the only one of its transactional id."""
        return self._invoke(Kind.START, process, transactional_id, None)

    def begin(self, process: str, transactional_id: str) -> Transaction:
        """A transaction begins, as far as its producer is concerned."""
        transaction = Transaction(process, transactional_id, self._clock())
        self.transactions.append(transaction)
        return transaction

    def send_in(
        self, transaction: Transaction, partition: str, value: str, copy_of: tuple[str, int] | None = None
    ) -> Operation:
        """A record is on its way, as part of a transaction."""
        operation = self.send(transaction.process, partition, value)
        operation.transaction, operation.copy_of = transaction, copy_of
        transaction.sends.append(operation)
        return operation

    def send_offsets(self, transaction: Transaction, group: str, offsets: dict[int, int]) -> Operation:
        """A group's offsets are on their way, as part of a transaction."""
        operation = self._invoke(Kind.SEND_OFFSETS, transaction.process, group, dict(offsets))
        operation.transaction = transaction
        return operation

    def end(self, transaction: Transaction, commit: bool) -> Operation:
        """The coordinator is being asked to commit or to abort."""
        value = "commit" if commit else "abort"
        operation = self._invoke(Kind.END, transaction.process, transaction.transactional_id, value)
        operation.transaction = transaction
        transaction.commit_asked |= commit
        return operation

    def ended(self, transaction: Transaction, status: Status, reason: str = "") -> None:
        """What became of a transaction."""
        assert transaction.status is Status.OPEN, f"ended twice: {transaction}"
        transaction.status, transaction.reason = status, reason

    def moved(self, process: str, partition: str) -> None:
        """The consumer begins to read the partition, or reads on somewhere else; its next poll follows nothing."""
        self._moved[process, partition] = True

    def polled(self, process: str, partition: str, records: Iterable[tuple[int, str]]) -> None:
        """The consumer got these records."""
        found = tuple(records)
        if found:
            resumed = self._moved.pop((process, partition), False)
            self.polls.append(Poll(process, partition, self._clock(), found, resumed))

    def final(self, partition: str, records: Iterable[tuple[int, str]]) -> None:
        """What a partition holds from its first to its last offset once everything has settled."""
        self.finals[partition] = dict(records)

    # Groups and metadata: values that are written and read.

    def commit(self, process: str, group: str, partition: str, offset: int) -> Operation:
        """A group's offset is being committed."""
        return self._invoke(Kind.COMMIT, process, f"{group} {partition}", offset)

    def fetch_committed(self, process: str, group: str, partition: str) -> Operation:
        """A group's committed offset is being asked for; its result is None where there is none."""
        return self._invoke(Kind.FETCH_COMMITTED, process, f"{group} {partition}", None)

    def change(self, process: str, thing: str, value: Any) -> Operation:
        """A thing of the cluster's metadata (a topic, a setting) is being given a value, None to remove it."""
        return self._invoke(Kind.CHANGE, process, thing, value)

    def look(self, process: str, thing: str) -> Operation:
        """The present value of a thing is being asked for, where the answer must be up to date."""
        return self._invoke(Kind.LOOK, process, thing, None)

    def ok(self, operation: Operation, result: Any = None) -> None:
        """It worked."""
        self._complete(operation, Status.OK, result=result)

    def fail(self, operation: Operation, reason: str) -> None:
        """It did not happen and never will."""
        self._complete(operation, Status.FAIL, reason=reason)

    def unknown(self, operation: Operation, reason: str) -> None:
        """It may have happened, or may yet happen."""
        self._complete(operation, Status.UNKNOWN, reason=reason)

    def notice(self, kind: str, text: str) -> None:
        """A client saw by itself that something is wrong."""
        self.noticed.append(Anomaly(kind, f"[{self._clock():.3f}] {text}"))

    def _invoke(self, kind: Kind, process: str, key: str, value: Any) -> Operation:
        operation = Operation(kind, process, key, value, self._clock())
        self.operations.append(operation)
        return operation

    def _complete(self, operation: Operation, status: Status, result: Any = None, reason: str = "") -> None:
        assert operation.status is Status.OPEN, f"completed twice: {operation}"
        operation.status, operation.result, operation.reason = status, result, reason
        operation.completed = self._clock()
