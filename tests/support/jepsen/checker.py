"""Names the anomalies of a history; what each of them means is in `ANOMALIES`.

The logs are taken from offsets (`analysis`). Everything else is about values: each was sent once, so a value stands
for the send that wrote it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .analysis import Analysis
from .cycles import cyclic_anomalies
from .operations import ASSIGNMENTS, Operation

ANOMALIES: Mapping[str, str] = {
    "lost-write": "a send that took effect was polled by no client, though one polled a value behind it",
    "unseen": "an acknowledged value was polled by no client until the end",
    "duplicate": "a value has several offsets in a key",
    "inconsistent-offsets": "an offset of a key has several values",
    "phantom": "a value was polled that no client sent",
    "nonmonotonic-poll": "a process polled a value at or before the last one it had polled",
    "poll-skip": "a process did not poll the value right behind the last one it had polled",
    "int-nonmonotonic-poll": "as nonmonotonic-poll, within one operation",
    "int-poll-skip": "as poll-skip, within one operation",
    "nonmonotonic-send": "a process sent a value that went before one it had sent earlier",
    "int-nonmonotonic-send": "as nonmonotonic-send, within one operation",
    "G0": "a cycle of operations, each with a value right behind one of its predecessor",
    "G1a": "a value was polled whose send certainly had no effect",
    "G1c": "a cycle of operations, each of which polled a value of its predecessor (or wrote right behind one)",
    "precommitted-read": "a transaction polled a value of its own",
    **{
        f"{name}-{order}": f"as {name}, but the cycle is closed by the order {described}"
        for name in ("G0", "G1c")
        for order, described in (("process", "in which a process did things"), ("realtime", "of time"))
    },
}


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One finding: its kind, its key if it has one, and the indexes of the operations that show it."""

    kind: str
    key: int | None
    text: str
    operations: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = "" if self.key is None else f" in {self.key}"
        return f"{self.kind}{where}: {self.text} (operations {', '.join(map(str, self.operations))})"


def check(history: Iterable[Operation], *, isolated_writes: bool = False, write_order: bool = False) -> list[Anomaly]:
    """Every anomaly.

    Transactions become visible as a whole, but their records lie among each other in the logs. So cycles of writes (G0)
    are looked for among operations with one record each; with `isolated_writes` among all of them. For the same reason
    edges of G1c are polls alone; with `write_order` the next value in a log is one too. Both are legal in Kafka.
    """
    analysis = Analysis(history)
    found: list[Anomaly] = []
    for checks in (
        lost_writes,
        unseen,
        duplicates,
        inconsistent_offsets,
        phantoms,
        aborted_reads,
        precommitted_reads,
        polls_between_operations,
        polls_within_operations,
        sends_between_operations,
        sends_within_operations,
    ):
        found += checks(analysis)
    cycles = cyclic_anomalies(analysis, write_order=write_order, isolated_writes=isolated_writes)
    return found + [Anomaly(kind, None, text, operations) for kind, text, operations in cycles]


def summary(anomalies: Iterable[Anomaly]) -> dict[str, int]:
    """How many there are of each kind."""
    return dict(sorted(Counter(one.kind for one in anomalies).items()))


def lost_writes(analysis: Analysis) -> Iterator[Anomaly]:
    """A consumer that polled a value would have polled those before it, unless they were gone."""
    for key, log in analysis.logs.items():
        seen = analysis.seen.get(key, set())
        reached = max((log.first[value] for value in seen if value in log.first), default=-1)
        for value, position in log.last.items():
            if position > reached or value in seen:
                continue
            writer = analysis.writer.get((key, value))
            if writer is not None and analysis.took_effect(writer):
                offset = log.offsets[position]
                text = f"{value} at offset {offset} was not seen, offset {log.offsets[reached]} was"
                yield Anomaly("lost-write", key, text, (writer.index,))


def unseen(analysis: Analysis) -> Iterator[Anomaly]:
    for (key, value), writer in analysis.writer.items():
        if writer.type == "ok" and value not in analysis.seen.get(key, ()):
            yield Anomaly("unseen", key, f"{value} was acknowledged", (writer.index,))


def duplicates(analysis: Analysis) -> Iterator[Anomaly]:
    for key, log in analysis.logs.items():
        for value, count in log.count.items():
            if count > 1:
                offsets = [offset for offset, found in zip(log.offsets, log.values, strict=True) if value in found]
                yield Anomaly("duplicate", key, f"{value} has the offsets {offsets}", _witnesses(analysis, key, value))


def inconsistent_offsets(analysis: Analysis) -> Iterator[Anomaly]:
    for key, log in analysis.logs.items():
        for offset, values in zip(log.offsets, log.values, strict=True):
            if len(values) > 1:
                shown = sorted(values)
                witnesses = tuple(index for value in shown for index in _witnesses(analysis, key, value))
                yield Anomaly("inconsistent-offsets", key, f"offset {offset} has the values {shown}", witnesses)


def phantoms(analysis: Analysis) -> Iterator[Anomaly]:
    for (key, value), readers in analysis.readers.items():
        if (key, value) not in analysis.writer:
            yield Anomaly("phantom", key, f"{value} was polled and never sent", (readers[0].index,))


def aborted_reads(analysis: Analysis) -> Iterator[Anomaly]:
    for (key, value), readers in analysis.readers.items():
        writer = analysis.writer.get((key, value))
        if writer is not None and writer.type == "fail":
            yield Anomaly("G1a", key, f"{value} was polled", (writer.index, readers[0].index))


def precommitted_reads(analysis: Analysis) -> Iterator[Anomaly]:
    for (key, value), readers in analysis.readers.items():
        writer = analysis.writer.get((key, value))
        if writer is not None and any(reader is writer for reader in readers):
            yield Anomaly("precommitted-read", key, f"{value} was polled before it was committed", (writer.index,))


def polls_between_operations(analysis: Analysis) -> Iterator[Anomaly]:
    """An operation that did not end in `ok` leaves its process where it was."""
    for operations in analysis.by_process.values():
        stands: dict[int, tuple[tuple[int | None, int], int]] = {}
        for one in operations:
            if one.f in ASSIGNMENTS:
                if one.type != "fail":
                    stands = {key: stand for key, stand in stands.items() if key in one.value}
                continue
            for key in one.rebalanced:
                stands.pop(key, None)
            for key, pairs in one.reads().items():
                stand = stands.get(key)
                if stand is not None and key in analysis.logs:
                    yield from _step(analysis, "", key, stand[0], pairs[0], (stand[1], one.index))
                if one.type == "ok":
                    stands[key] = pairs[-1], one.index
            for key in one.rebalanced:
                stands.pop(key, None)


def polls_within_operations(analysis: Analysis) -> Iterator[Anomaly]:
    for one in analysis.data:
        for key, pairs in one.reads().items():
            if key in analysis.logs and key not in one.rebalanced:
                for pair, following in itertools.pairwise(pairs):
                    yield from _step(analysis, "int-", key, pair, following, (one.index,))


def _step(
    analysis: Analysis,
    prefix: str,
    key: int,
    pair: tuple[int | None, int],
    following: tuple[int | None, int],
    operations: tuple[int, ...],
) -> Iterator[Anomaly]:
    log = analysis.logs[key]
    distance = log.distance(pair, following)
    if distance is None or distance == 1:
        return
    if distance < 1:
        text = f"offset {following[0]} ({following[1]}) after offset {pair[0]} ({pair[1]})"
        yield Anomaly(f"{prefix}nonmonotonic-poll", key, text, operations)
    else:
        skipped = log.between(pair, following)
        text = f"{skipped} between offsets {pair[0]} and {following[0]} were skipped"
        yield Anomaly(f"{prefix}poll-skip", key, text, operations)


def sends_between_operations(analysis: Analysis) -> Iterator[Anomaly]:
    for operations in analysis.by_process.values():
        last: dict[int, tuple[tuple[int | None, int], int]] = {}
        for one in operations:
            if one.type == "fail":
                continue
            for key, pairs in one.writes().items():
                if key not in analysis.logs:
                    continue
                earlier = last.get(key)
                if earlier is not None:
                    distance = analysis.logs[key].distance(earlier[0], pairs[0])
                    if distance is not None and distance < 1:
                        text = f"{pairs[0][1]} went before {earlier[0][1]}"
                        yield Anomaly("nonmonotonic-send", key, text, (earlier[1], one.index))
                last[key] = pairs[-1], one.index


def sends_within_operations(analysis: Analysis) -> Iterator[Anomaly]:
    for one in analysis.data:
        if not analysis.took_effect(one):
            continue
        for key, pairs in one.writes().items():
            if key not in analysis.logs:
                continue
            for pair, following in itertools.pairwise(pairs):
                distance = analysis.logs[key].distance(pair, following)
                if distance is not None and distance < 1:
                    text = f"{following[1]} went before {pair[1]}"
                    yield Anomaly("int-nonmonotonic-send", key, text, (one.index,))


def _witnesses(analysis: Analysis, key: int, value: int) -> tuple[int, ...]:
    writer = analysis.writer.get((key, value))
    readers = analysis.readers.get((key, value), [])[:2]
    return tuple(one.index for one in ([writer] if writer is not None else []) + readers)
