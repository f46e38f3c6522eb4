"""What was promised of a partition, and whether what was found keeps it.

A history is every record that was ever meant to be at its offset. While a truncation is under way there are two of
them, and either may be found. Afterwards the former one must not come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.core.replica.producer_state import NO_OFFSET

KILL, POWER = "kill", "power"
COMMIT, ABORT = "commit", "abort"


class Row(NamedTuple):
    """One record, and the fields of its batch that concern it."""

    offset: int
    epoch: int
    key: bytes | None
    value: bytes | None
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False
    marker: str = ""

    def __str__(self) -> str:
        what = self.marker or f"{self.key!r}: {(self.value or b'')[:12]!r}"
        return f"{self.offset} (epoch {self.epoch}) {what}"


class Producer(NamedTuple):
    """A producer's state: its epoch, its last sequence, and where its open transaction began."""

    epoch: int
    sequence: int
    transaction: int = NO_OFFSET


class Promise(NamedTuple):
    """What holds at one moment."""

    histories: tuple[tuple[Row, ...], ...]
    # The offset before which everything must be there after a kill, and after a power cut.
    kept: dict[str, int]
    # Where the log may start: from what was certainly deleted, to what may have been.
    start_min: int = 0
    start_max: int = 0
    # Offsets before this one are in object storage.
    tiered: int = 0
    compacted: bool = False
    # How far the cleaner's checkpoint may reach.
    clean_max: int = 1 << 60
    # Whether a truncation is under way: the recovery point may still be past the end.
    is_cutting: bool = False
    # Whether stored bytes were damaged: then the log may refuse to open, and nothing of it may change.
    is_damaged: bool = False
    size_min: int = 0
    # The state of producers and the aborted transactions, where it does not follow from the history alone.
    producers: tuple[tuple[int, Producer], ...] | None = None
    aborted: tuple[tuple[int, int, int], ...] | None = None
    # Whether compaction has removed records in favour of others that were truncated then: the leader has them.
    is_thinned: bool = False


class Ledger:
    """What was promised so far of one partition."""

    def __init__(self, *, compacted: bool = False) -> None:
        self.history: list[Row] = []
        self.others: list[list[Row]] = []
        self.kept = {KILL: 0, POWER: 0}
        self.start_min = self.start_max = self.tiered = self.size_min = 0
        self.compacted = compacted
        self.clean_max = 1 << 60
        self.is_cutting = self.is_damaged = self.is_thinned = False
        self.producers: tuple[tuple[int, Producer], ...] | None = None
        self.aborted: tuple[tuple[int, int, int], ...] | None = None
        # Where a log that begins anew begins on disk, and where in all.
        self.anew: tuple[int, int] | None = None

    @classmethod
    def of(cls, promise: Promise) -> Ledger:
        """What was promised by a process that has ended."""
        ledger = cls(compacted=promise.compacted)
        ledger.history, *ledger.others = (list(one) for one in promise.histories)
        ledger.kept = dict(promise.kept)
        ledger.start_min, ledger.start_max, ledger.tiered = promise.start_min, promise.start_max, promise.tiered
        ledger.clean_max, ledger.is_cutting = promise.clean_max, promise.is_cutting
        return ledger

    def freeze(self) -> Promise:
        histories = tuple(tuple(one) for one in (self.history, *self.others))
        return Promise(
            histories,
            dict(self.kept),
            self.start_min,
            self.start_max,
            self.tiered,
            self.compacted,
            self.clean_max,
            self.is_cutting,
            self.is_damaged,
            self.size_min,
            self.producers,
            self.aborted,
            self.is_thinned,
        )

    def offer(self, row: Row) -> None:
        """A record is about to be written."""
        if row in self.history:
            return
        if self.history and self.history[-1].offset >= row.offset:
            # An earlier one was refused there; a crash may find it.
            self.others.append(list(self.history))
            del self.history[next(n for n, one in enumerate(self.history) if one.offset >= row.offset) :]
        self.history.append(row)

    def written(self, end: int) -> None:
        """Everything before an offset was accepted: a kill leaves it."""
        self.kept[KILL] = max(self.kept[KILL], end)

    def synced(self, end: int) -> None:
        """Everything before an offset was acknowledged as durable."""
        self.written(end)
        self.kept[POWER] = max(self.kept[POWER], end)

    def beginning(self, local_start: int, start: int, known: list[Row]) -> None:
        """The log may be emptied, to begin at `local_start`, after what is `known`: nothing is promised meanwhile."""
        if self.anew is None and local_start > self.end:
            self.others.append(self.history)
            self.history = known
            self.tiered = local_start if known else 0
            self.kept = dict.fromkeys(self.kept, 0)
            self.start_min, self.start_max = 0, local_start
            self.anew = local_start, start
            self.is_cutting = True

    def begun(self, offset: int) -> None:
        """The log has begun anew, if it is one that should."""
        if self.anew is not None and offset >= self.anew[0]:
            self.start_min = self.anew[1]
            self.start_max = max(self.start_max, self.anew[0])
            self.anew = None
            self.is_cutting = False
            self.others = []

    @property
    def end(self) -> int:
        return self.history[-1].offset + 1 if self.history else 0

    def deleting(self) -> None:
        """The topic is being deleted: all of it may be there, or nothing."""
        self.others.append(self.history)
        self.history = []
        self.kept = dict.fromkeys(self.kept, 0)
        self.is_cutting = True

    def deleted(self) -> None:
        """Nothing of the former topic may come back; its checkpoints go when the new one gets its directory."""
        self.others = []

    def cutting(self, offset: int) -> None:
        """A truncation may begin: what is after `offset` may be there or not."""
        self.others.append(list(self.history))
        self.history = [row for row in self.history if row.offset < offset]
        self.kept = {kind: 0 if self.compacted else min(end, offset) for kind, end in self.kept.items()}
        self.is_cutting, self.is_thinned = True, self.compacted

    def cut(self) -> None:
        """The truncation has ended: nothing of what was cut may come back."""
        self.others = []
        self.is_cutting = False
        self.clean_max = min(self.clean_max, len(self.history) and self.history[-1].offset + 1)


class Anomaly(NamedTuple):
    """Something that is not as promised."""

    kind: str
    promised: str
    found: str


class Found(NamedTuple):
    """One partition as a process sees it."""

    problem: str = ""
    rows: tuple[Row, ...] = ()
    start: int = 0
    local_start: int = 0
    end: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    producers: tuple[tuple[int, Producer], ...] = ()
    aborted: tuple[tuple[int, int, int], ...] = ()
    recovery_point: int = 0
    clean: int = 0
    size: int = 0
    # Whether the last incarnation counts as one that has lost nothing.
    is_trusted: bool = False
    # What a consumer reads from object storage between the start and the first offset on disk, if that was tried.
    tier_rows: tuple[Row, ...] | None = None


def judge(found: Found, promise: Promise, survived: str, *, checks_files: bool = True) -> list[Anomaly]:
    """Everything that is wrong with a partition after this kind of crash."""
    if found.problem:
        if promise.is_damaged and found.size >= promise.size_min:
            return []
        return [Anomaly("refused", "the partition opens", found.problem)]
    anomalies: list[Anomaly] = []
    # In a directory that is not trusted any more, damage behind what was durable is taken for a torn end.
    survived = POWER if promise.is_damaged and not found.is_trusted else survived
    kept = promise.kept[KILL if found.is_trusted else survived]
    if promise.is_damaged and found.end < kept:
        text = f"everything before {kept}, or a log that refuses to open with its {promise.size_min} bytes"
        return [Anomaly("lost", text, f"it ends at {found.end}, and has {found.size} bytes")]
    if found.end < kept:
        kind = "lost-but-trusted" if found.is_trusted and found.end >= promise.kept[survived] else "lost"
        promised = f"everything before {kept} after a {survived}"
        if found.is_trusted:
            promised += ", as the directory is trusted to have all that was ever written"
        anomalies.append(Anomaly(kind, promised, f"the log ends at {found.end}"))
    if found.start < promise.start_min:
        deleted = f"records before {promise.start_min} were deleted"
        anomalies.append(Anomaly("deleted-returned", deleted, f"the log starts at {found.start}"))
    if found.start > promise.start_max:
        allowed = f"a start of at most {promise.start_max}"
        anomalies.append(Anomaly("lost-start", allowed, f"the log starts at {found.start}"))
    if found.local_start > max(found.start, promise.tiered):
        begins = f"offsets {max(found.start, promise.tiered)} to {found.local_start - 1} are nowhere"
        anomalies.append(Anomaly("hole", f"a log from {found.start} on, {promise.tiered} of it in the tier", begins))
    history = _matching(found, promise)
    if history is None:
        anomalies.append(_difference(found, promise))
    else:
        anomalies += _check_state(found, history, promise)
        if found.tier_rows is not None:
            anomalies += _check_tier(found, history, promise)
    if checks_files and survived == POWER and found.recovery_point > found.end and not promise.is_cutting:
        flushed = f"a recovery point of at most {found.end}"
        anomalies.append(Anomaly("recovery-point", flushed, str(found.recovery_point)))
    if checks_files and found.clean > promise.clean_max and not promise.is_cutting:
        clean = f"a cleaner's checkpoint of at most {promise.clean_max}"
        anomalies.append(Anomaly("cleaner-checkpoint", clean, str(found.clean)))
    return anomalies


def _matching(found: Found, promise: Promise) -> tuple[Row, ...] | None:
    """The history up to the end that what was found agrees with."""
    for history in promise.histories:
        known = tuple(row for row in history if row.offset < found.end)
        here = tuple(row for row in known if row.offset >= found.local_start)
        shown = tuple(row for row in found.rows if row.offset >= found.local_start)
        if promise.compacted:
            if not _lost_of_compacted(shown, here, is_thinned=promise.is_thinned):
                return known
        elif shown == here and len(here) == found.end - found.local_start:
            return known
    return None


def _lost_of_compacted(shown: Sequence[Row], history: Sequence[Row], *, is_thinned: bool) -> str:
    """What is wrong with a compacted log; empty if it is right."""
    known = {row.offset: row for row in history}
    for row in shown:
        if known.get(row.offset) != row:
            return f"{row} was never there"
    offsets = {row.offset for row in shown}
    aborted = expected_aborted(history)
    latest = {row.key: row for row in history if not row.marker and not _is_aborted(row, aborted)}
    for key, row in latest.items():
        if row.value is not None and row.offset not in offsets and not is_thinned:
            return f"{row} is missing"
        if row.value is None and row.offset not in offsets:
            back = [one for one in shown if one.key == key and not _is_aborted(one, aborted)]
            if back:
                return f"{key!r} was deleted, and {back[-1]} is back"
    return ""


def _is_aborted(row: Row, aborted: Iterable[tuple[int, int, int]]) -> bool:
    return any(one[0] == row.producer_id and one[1] <= row.offset <= one[2] for one in aborted)


def _difference(found: Found, promise: Promise) -> Anomaly:
    offsets = [row.offset for row in found.rows if row.offset >= found.local_start]
    history = {row.offset: row for row in promise.histories[0]}
    if promise.compacted:
        here = [row for row in promise.histories[0] if found.local_start <= row.offset < found.end]
        shown = [row for row in found.rows if row.offset >= found.local_start]
        text = _lost_of_compacted(shown, here, is_thinned=promise.is_thinned)
        return Anomaly("deleted-key-back" if "is back" in text else "different", "the last record of each key", text)
    missing = sorted(set(range(found.local_start, found.end)) - set(offsets))
    if missing:
        return Anomaly("hole", f"every offset from {found.local_start} to {found.end - 1}", f"{missing} are missing")
    wrong = [row for row in found.rows if row.offset >= found.local_start and history.get(row.offset) != row]
    first = wrong[0] if wrong else None
    cut = [row for row in wrong if any(row in other for other in promise.histories[1:])] if len(wrong) else []
    kind = "mixed" if cut else "resurrected" if first is not None and first.offset not in history else "different"
    return Anomaly(kind, f"one of {len(promise.histories)} histories, as {_ends(promise.histories)}", f"{first}")


def _ends(histories: Iterable[Sequence[Row]]) -> str:
    return " or ".join(str(one[-1]) if one else "nothing" for one in histories)


def _check_state(found: Found, history: Sequence[Row], promise: Promise) -> list[Anomaly]:
    anomalies = []
    producers = expected_producers(history) if promise.producers is None else dict(promise.producers)
    if dict(found.producers) != producers:
        anomalies.append(Anomaly("producers", f"{producers}", f"{dict(found.producers)}"))
    aborted = expected_aborted(history) if promise.aborted is None else promise.aborted
    wanted = {one for one in aborted if one[2] >= found.local_start}
    have = {one for one in found.aborted if one[2] >= found.local_start}
    if promise.compacted:
        # The index of a transaction of which nothing is left goes with it.
        shown = [row for row in found.rows if not row.marker]
        wrong = [row for row in shown if _is_aborted(row, wanted) != _is_aborted(row, have)]
        if not wrong:
            have = wanted
    if have != wanted:
        anomalies.append(Anomaly("aborted-index", f"{sorted(wanted)}", f"{sorted(have)}"))
    for row in found.rows:
        if row.offset >= found.start and _epoch_at(found.epochs, row.offset) != row.epoch:
            text = f"{row.offset} is of epoch {_epoch_at(found.epochs, row.offset)}; the epochs are {found.epochs}"
            anomalies.append(Anomaly("epochs", f"{row.offset} is of epoch {row.epoch}", text))
            break
    return anomalies


def _check_tier(found: Found, history: Sequence[Row], promise: Promise) -> list[Anomaly]:
    """What the disk does not have must be in object storage, unless it may be deleted already."""
    assert found.tier_rows is not None
    first = max(found.start, promise.start_max)
    wanted = [row for row in history if first <= row.offset < found.local_start]
    have = [row for row in found.tier_rows if row.offset >= first]
    if have == wanted:
        return []
    missing = [row.offset for row in wanted if row not in have]
    text = f"{missing} cannot be read, or are different"
    return [Anomaly("tier-lost", f"offsets {first} to {found.local_start - 1} in object storage", text)]


def _epoch_at(epochs: Iterable[tuple[int, int]], offset: int) -> int:
    return max((epoch for epoch, start in epochs if start <= offset), default=-1)


def expected_producers(history: Iterable[Row]) -> dict[int, Producer]:
    """The producers' state after these records."""
    found: dict[int, Producer] = {}
    for row in history:
        if row.producer_id < 0:
            continue
        before = found.get(row.producer_id, Producer(row.producer_epoch, -1))
        if row.marker:
            found[row.producer_id] = Producer(row.producer_epoch, before.sequence)
        else:
            began = before.transaction
            if row.is_transactional and began == NO_OFFSET:
                began = row.offset
            found[row.producer_id] = Producer(row.producer_epoch, row.sequence, began)
    return found


def expected_aborted(history: Iterable[Row]) -> list[tuple[int, int, int]]:
    """Aborted transactions: the producer, the first offset, and the marker's."""
    began: dict[int, int] = {}
    aborted = []
    for row in history:
        if row.marker:
            first = began.pop(row.producer_id, None)
            if row.marker == ABORT and first is not None:
                aborted.append((row.producer_id, first, row.offset))
        elif row.is_transactional:
            began.setdefault(row.producer_id, row.offset)
    return aborted
