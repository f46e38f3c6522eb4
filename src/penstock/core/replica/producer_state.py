"""The producers of a partition, so that a retried batch is stored only once and a fenced producer's never.

Every idempotent producer numbers its records per partition. The partition keeps, for each producer id, the epoch and
the last five batches. A batch that repeats one of them is a duplicate and is answered with the offsets of the first
copy; one that continues the sequence is accepted; anything else left a gap. A larger epoch starts again at sequence 0,
a smaller one is fenced. An unknown producer may start anywhere: its earlier records may have been deleted.

`check` asks, `update` and `complete` record what was appended. Nothing here reads a clock or a disk.

The first batch of a transaction is only accepted after its coordinator was asked whether the partition is part of it
(KIP-890). `begin_verification` returns the token of that request, and the batch must come with it. A marker that ends
the transaction in the meantime invalidates the token, so that a delayed batch cannot start a transaction that is
never ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.records import BatchHeader

BATCHES_KEPT = 5
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
NO_TIMESTAMP = -1
# The transaction.version from which on every end of a transaction bumps the epoch.
EPOCH_BUMPS = 2
SEQUENCE_MAX = 2**31 - 1
# Tokens that are never used expire; beyond this many the oldest are dropped at once.
VERIFICATIONS_MAX = 10_000
# How many entries are loaded from a snapshot or looked through in a turn, a few milliseconds' worth.
ENTRIES_PER_TURN = 2_000

_TRANSACTIONAL = 0x10


class AppendOrigin(Enum):
    """Where a batch comes from. Clients are checked in full, coordinators by epoch only, replicas not at all."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class AppendedBatch(NamedTuple):
    """One of a producer's last batches."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is already in the log; the producer gets these offsets again."""

    base_offset: int
    last_offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class RefusedBatch:
    """The batch must not be appended; `code` and `message` go to the producer."""

    code: ErrorCode
    message: str


class MarkerRefused(ApiError):
    """A marker must not be appended; `first_offset` tells a coordinator that has to know what it would end."""

    def __init__(self, code: ErrorCode, message: str, first_offset: int = NO_OFFSET) -> None:
        super().__init__(code, message)
        self.first_offset = first_offset


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction that was ended by its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class EndMarker(NamedTuple):
    """The content of a control record that ends a transaction, and the transaction's version."""

    aborted: bool
    coordinator_epoch: int
    # From version 2 on every transaction has its own epoch, and its end carries the next one.
    transaction_version: int = EPOCH_BUMPS
    # Where the transaction began in the partition, as its coordinator was told; NO_OFFSET when it was not yet.
    # With None, as tools request it, whatever is open ends.
    first_offset: int | None = None


@dataclass(slots=True, eq=False)
class Verification:
    """A verification request to a transaction's coordinator, compared by identity.

    Several batches of a producer may be in flight; the one with the lowest sequence must come first.
    """

    producer_epoch: int
    lowest_sequence: int
    began_ms: int
    # Every transaction has its own epoch (version 2): a marker with this one ended an earlier transaction.
    bumps_epoch: bool = False

    def is_void_after(self, marker_epoch: int) -> bool:
        """Whether a marker ends the transaction being verified."""
        return marker_epoch > self.producer_epoch or (marker_epoch == self.producer_epoch and not self.bumps_epoch)


# For batches that need no verification.
NOT_REQUIRED = Verification(NO_EPOCH, SEQUENCE_MAX, NO_TIMESTAMP)


@dataclass(slots=True)
class ProducerEntry:
    """The state of one producer; `batches` are in the order of their sequences.

    `last_timestamp` is when it last appended, by the clock here: what it writes may be years old.
    """

    producer_id: int
    producer_epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    transaction_first_offset: int = NO_OFFSET
    batches: tuple[AppendedBatch, ...] = ()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def move_to_epoch(self, producer_epoch: int) -> None:
        """Sequences restart in every epoch, so batches of another epoch are dropped."""
        if producer_epoch != self.producer_epoch:
            self.batches = ()
            self.producer_epoch = producer_epoch


class ProducerState:
    """The producers of one partition. `end_offset` is the log end offset up to which batches are included."""

    __slots__ = ("_ended", "_entries", "_transactions", "_verifications", "end_offset")

    def __init__(self, end_offset: int = 0) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        # First offsets of open transactions, by producer id, in offset order.
        self._transactions: dict[int, int] = {}
        # Marker and first offset of transactions whose marker was not below the high watermark at the last check.
        self._ended: deque[tuple[int, int]] = deque()
        self._verifications: dict[int, Verification] = {}
        self.end_offset = end_offset

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Iterable[ProducerEntry]:
        return self._entries.values()

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._transactions.values()), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is undecided for read_committed readers, who stop there.

        It is decided when its marker is below the high watermark: before that the marker could still be lost.
        """
        ended = self._ended
        while ended and ended[0][0] < high_watermark:
            ended.popleft()
        undecided = self.first_undecided_offset
        if ended:
            first_offset = min(first_offset for _, first_offset in ended)
            return first_offset if undecided is None else min(first_offset, undecided)
        return undecided

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int, *, bumps_epoch: bool = False
    ) -> Verification | None:
        """The token for a request to the coordinator; None if the transaction is open here and no request is needed.

        `bumps_epoch` is whether the producer uses version 2.
        """
        if self._is_open(producer_id, producer_epoch):
            return None
        known = self._verifications.get(producer_id)
        if known is not None and known.producer_epoch == producer_epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
            return known
        assert known is None or known.producer_epoch != producer_epoch
        begun = Verification(producer_epoch, sequence, now_ms, bumps_epoch)
        # A fenced producer gets a token that is never accepted.
        if known is None or known.producer_epoch < producer_epoch:
            self._verifications.pop(producer_id, None)
            self._verifications[producer_id] = begun
            if len(self._verifications) > VERIFICATIONS_MAX:
                del self._verifications[next(iter(self._verifications))]
                assert len(self._verifications) == VERIFICATIONS_MAX
                assert producer_id in self._verifications, "the newest token is kept"
        return begun

    def _is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer's transaction is open here. One of an earlier epoch has ended, except for its marker."""
        return producer_id in self._transactions and self._entries[producer_id].producer_epoch == producer_epoch

    def is_verified(self, producer_id: int, producer_epoch: int, verification: Verification | None) -> bool:
        """Whether a producer may write in its transaction: it is open here, or its token is still valid."""
        if verification is NOT_REQUIRED or self._is_open(producer_id, producer_epoch):
            return True
        return verification is not None and self._verifications.get(producer_id) is verification

    def check(
        self,
        header: BatchHeader,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: Verification | None = NOT_REQUIRED,
    ) -> Duplicate | RefusedBatch | None:
        """May this batch of data be appended? None means yes."""
        producer_id = header.producer_id
        if producer_id < 0 or origin is AppendOrigin.REPLICATION:
            return None
        entry = self._entries.get(producer_id)
        verdict = None if entry is None else self._check_known(header, origin, entry)
        if verdict is None and origin is AppendOrigin.CLIENT and header.attributes & _TRANSACTIONAL:
            return self._check_verified(header, verification)
        return verdict

    def _check_verified(self, header: BatchHeader, verification: Verification | None) -> RefusedBatch | None:
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        if not self.is_verified(producer_id, producer_epoch, verification):
            return RefusedBatch(
                ErrorCode.INVALID_TXN_STATE,
                f"The transaction of producer {producer_id} ended before this batch arrived.",
            )
        if self._is_open(producer_id, producer_epoch) or verification is None or verification is NOT_REQUIRED:
            return None
        if header.base_sequence > verification.lowest_sequence:
            return RefusedBatch(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {producer_id} sent sequence {header.base_sequence} before {verification.lowest_sequence}.",
            )
        return None

    def _check_known(
        self, header: BatchHeader, origin: AppendOrigin, entry: ProducerEntry
    ) -> Duplicate | RefusedBatch | None:
        producer_id = header.producer_id
        epoch = header.producer_epoch
        if origin is AppendOrigin.CLIENT and epoch == entry.producer_epoch:
            first, last = header.base_sequence, header.last_sequence
            for batch in entry.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
        if epoch < entry.producer_epoch:
            return RefusedBatch(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {producer_id} has epoch {epoch}, but epoch {entry.producer_epoch} has already written here; "
                "another instance took over.",
            )
        if origin is AppendOrigin.CLIENT:
            refused = _check_sequence(header, entry)
            if refused is not None:
                return refused
        if entry.transaction_first_offset != NO_OFFSET and not header.attributes & _TRANSACTIONAL:
            return RefusedBatch(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {producer_id} has an open transaction here and must write inside it.",
            )
        return None

    def check_marker(self, header: BatchHeader, marker: EndMarker) -> None:
        """May this transaction marker be appended? Raises MarkerRefused. Checked for markers that a coordinator sends.

        One that is late or repeated must not end the producer's next transaction (KIP-1228). Where nothing is open it
        is accepted again: the coordinator may have missed the first answer.

        Transactions of version 1 share their epoch, so a marker must name the offset where its transaction began here.
        A coordinator that does not know it learns it from the refusal, and sends the marker again; the sender of a late
        marker no longer waits for one.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.producer_epoch:
            raise MarkerRefused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"The marker of producer {header.producer_id} has epoch {header.producer_epoch}, "
                f"but epoch {entry.producer_epoch} has already written here.",
            )
        first_offset = entry.transaction_first_offset
        is_open = header.producer_epoch == entry.producer_epoch and first_offset != NO_OFFSET
        if is_open and marker.transaction_version >= EPOCH_BUMPS:
            raise MarkerRefused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"The marker of producer {header.producer_id} has epoch {header.producer_epoch}, in which its next "
                "transaction is already open here.",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise MarkerRefused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"The coordinator of producer {header.producer_id} has epoch {marker.coordinator_epoch}, "
                f"but epoch {entry.coordinator_epoch} has already ended a transaction here.",
            )
        if is_open and marker.first_offset is not None and marker.first_offset != first_offset:
            raise MarkerRefused(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"Producer {header.producer_id} has a transaction open here that began at offset {first_offset}, "
                "and the marker does not say so.",
                first_offset,
            )

    def update(self, header: BatchHeader, appended_ms: int | None = None) -> None:
        """Record a batch of data that is now in the log, with its final offsets.

        Where it is not known when the batch was appended, its own timestamp has to do.
        """
        (base_offset, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, first_sequence, _) = header
        last_offset = base_offset + delta
        self.end_offset = last_offset + 1
        if producer_id < 0:
            return
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, epoch)
        elif epoch != entry.producer_epoch:
            entry.move_to_epoch(epoch)
        last_sequence = (first_sequence + delta) & SEQUENCE_MAX if first_sequence >= 0 else NO_SEQUENCE
        batch = AppendedBatch(first_sequence, last_sequence, base_offset, last_offset, timestamp)
        entry.batches = (*entry.batches[1 - BATCHES_KEPT :], batch)
        entry.last_timestamp = timestamp if appended_ms is None else appended_ms
        assert len(entry.batches) <= BATCHES_KEPT
        if attributes & _TRANSACTIONAL and entry.transaction_first_offset == NO_OFFSET:
            entry.transaction_first_offset = self._transactions[producer_id] = base_offset
            self._verifications.pop(producer_id, None)

    def complete(
        self, header: BatchHeader, marker: EndMarker, appended_ms: int | None = None
    ) -> CompletedTransaction | None:
        """Record a marker that is now in the log; returns the transaction it ended, if that had records here."""
        self.end_offset = header.next_offset
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        entry.move_to_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp if appended_ms is None else appended_ms
        entry.transaction_first_offset = NO_OFFSET
        verification = self._verifications.get(producer_id)
        if verification is not None and verification.is_void_after(header.producer_epoch):
            del self._verifications[producer_id]
        first_offset = self._transactions.pop(producer_id, None)
        if first_offset is None:
            return None
        assert producer_id not in self._transactions
        assert entry.transaction_first_offset == NO_OFFSET
        self._ended.append((header.base_offset, first_offset))
        return CompletedTransaction(producer_id, first_offset, header.base_offset, marker.aborted)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that have been idle this long, except with an open transaction; returns how many."""
        before = len(self._entries)
        for _ in self.expire_in_turns(now_ms, expiration_ms):
            pass
        return before - len(self._entries)

    def expire_in_turns(self, now_ms: int, expiration_ms: int) -> Iterator[None]:
        """As `expire`, some entries at a time; the state may change in between."""
        for number, producer_id in enumerate([*self._entries], 1):
            if number % ENTRIES_PER_TURN == 0:
                yield
            entry = self._entries.get(producer_id)
            if entry is not None and _is_expired(entry, now_ms, expiration_ms):
                assert producer_id not in self._transactions, "an open transaction keeps its producer"
                del self._entries[producer_id]
        for producer_id, verification in [*self._verifications.items()]:
            if now_ms - verification.began_ms >= expiration_ms:
                del self._verifications[producer_id]

    def may_repeat(self, header: BatchHeader) -> bool:
        """Whether a refused batch may be an earlier one again that is no longer among those kept."""
        entry = self._entries.get(header.producer_id)
        if entry is None or not entry.batches or header.producer_epoch != entry.producer_epoch:
            return False
        assert header.producer_id == entry.producer_id
        return (entry.last_sequence - header.base_sequence) & SEQUENCE_MAX <= SEQUENCE_MAX // 2

    def load(self, entries: Iterable[ProducerEntry], end_offset: int, now_ms: int, expiration_ms: int) -> None:
        """Replace everything by a snapshot's content; what follows it in the log is added with `update`."""
        for _ in self.load_in_turns(entries, end_offset, now_ms, expiration_ms):
            pass

    def load_in_turns(
        self, entries: Iterable[ProducerEntry], end_offset: int, now_ms: int, expiration_ms: int
    ) -> Iterator[None]:
        """As `load`, some entries at a time; the state is as before until all are there."""
        kept: dict[int, ProducerEntry] = {}
        for number, entry in enumerate(entries, 1):
            if number % ENTRIES_PER_TURN == 0:
                yield
            if not _is_expired(entry, now_ms, expiration_ms):
                kept[entry.producer_id] = entry
        self.clear(end_offset)
        self._entries = kept
        undecided = [entry for entry in self._entries.values() if entry.transaction_first_offset != NO_OFFSET]
        undecided.sort(key=lambda entry: entry.transaction_first_offset)
        self._transactions.update((entry.producer_id, entry.transaction_first_offset) for entry in undecided)
        assert self._transactions.keys() <= self._entries.keys()
        assert not self._ended, "a snapshot has no markers that may be lost"
        assert not self._verifications

    def clear(self, end_offset: int) -> None:
        """Start again without any producers."""
        self._entries.clear()
        self._transactions.clear()
        self._ended.clear()
        self._verifications.clear()
        self.end_offset = end_offset


def first_sequence_of(last_sequence: int, delta: int) -> int:
    """The sequence `delta` before this one, counting back past 0 to the largest."""
    return (last_sequence - delta) & SEQUENCE_MAX


def _check_sequence(header: BatchHeader, entry: ProducerEntry) -> RefusedBatch | None:
    first = header.base_sequence
    if header.producer_epoch != entry.producer_epoch:
        if first == 0 or entry.producer_epoch == NO_EPOCH:
            return None
        return RefusedBatch(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {header.producer_id} begins epoch {header.producer_epoch} with sequence {first} instead of 0 "
            f"(epoch {entry.producer_epoch} wrote last).",
        )
    last = entry.last_sequence
    # From -1 (nothing in this epoch yet) the next is 0, and the largest sequence is followed by 0 again.
    if first == last + 1 or (first == 0 and last == SEQUENCE_MAX) or entry.producer_epoch == NO_EPOCH:
        return None
    return RefusedBatch(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Producer {header.producer_id} sent sequence {first} after {last}; a batch between them is missing "
        "or this one is too old to be known.",
    )


def _is_expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    return entry.transaction_first_offset == NO_OFFSET and now_ms - entry.last_timestamp >= expiration_ms
