"""The anomalies of Jepsen's Kafka workload, and of values that are written and read.

    lost-write            acknowledged, and not in the log at the end
    lost-read             a consumer got it, and it is not in the log at the end
    unseen                acknowledged and in the log, and no consumer ever got it
    duplicate             one value at several offsets
    inconsistent-offsets  several values at one offset, or an acknowledgement that names another offset than the log
    phantom               read, and never sent
    failed-read           sent, refused for good, and read all the same
    poll-skip             a consumer went past a record without getting it
    nonmonotonic-poll     a consumer's offsets went back
    nonmonotonic-send     a producer's records lie in another order than it sent them
    lost-update           a committed offset or a metadata change is gone, or an older one is back
    phantom-value         a committed offset or a metadata value that was never written

Those of transactions are in `support.history_transactions`, and what may lawfully be gone is in
`support.history_policies`.

`check` also hands on what clients noticed by themselves. It is pure: the same history gives the same list.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from support.history import Anomaly, History, Kind, Operation, Status
from support.history_policies import Places, Policies
from support.history_transactions import check_transactions

# Of one kind of anomaly so many are told; the rest is counted.
TOLD_MAX = 5

READS_OF = {Kind.FETCH_COMMITTED: Kind.COMMIT, Kind.LOOK: Kind.CHANGE}


def check(history: History, *, drained: bool = True) -> list[Anomaly]:
    """Every anomaly. `drained` means that consumers were given the time to read everything."""
    found = list(history.noticed)
    sends = [operation for operation in history.operations if operation.kind is Kind.SEND]
    places = _places(history)
    found += _check_offsets(sends, places)
    policies = Policies(history, places)
    found += _check_presence(history, sends, places, drained, policies)
    found += _check_polls(history, sends, places, policies)
    found += _check_send_order(sends, places)
    found += _check_registers(history.operations)
    found += check_transactions(history)
    return _shorten(found)


def _places(history: History) -> Places:
    """By partition and offset, every value that anybody ever read there."""
    places: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for poll in history.polls:
        for offset, value in poll.records:
            places[poll.partition][offset].add(value)
    for partition, records in history.finals.items():
        for offset, value in records.items():
            places[partition][offset].add(value)
    return places


def _check_offsets(sends: list[Operation], places: Places) -> Iterator[Anomaly]:
    for partition, by_offset in places.items():
        offsets_of: dict[str, list[int]] = defaultdict(list)
        for offset in sorted(by_offset):
            values = by_offset[offset]
            if len(values) > 1:
                yield Anomaly("inconsistent-offsets", f"{partition} offset {offset} was read as {sorted(values)}")
            for value in values:
                offsets_of[value].append(offset)
        for value, offsets in offsets_of.items():
            if len(offsets) > 1:
                yield Anomaly("duplicate", f"{partition} has {value!r} at offsets {offsets}")
    acknowledged: dict[tuple[str, int], Operation] = {}
    for send in sends:
        if send.status is not Status.OK or send.result is None:
            continue
        other = acknowledged.setdefault((send.key, send.result), send)
        if other is not send:
            yield Anomaly("inconsistent-offsets", f"two sends got one offset: {other} and {send}")
        found = places.get(send.key, {}).get(send.result)
        if found and send.value not in found:
            yield Anomaly("inconsistent-offsets", f"{sorted(found)} is where this was acknowledged: {send}")


def _check_presence(
    history: History, sends: list[Operation], places: Places, drained: bool, policies: Policies
) -> Iterator[Anomaly]:
    sent = {(send.key, send.value): send for send in sends}
    polled = {(poll.partition, value): poll for poll in history.polls for _, value in poll.records}
    final = {partition: set(records.values()) for partition, records in history.finals.items()}
    for send in sends:
        if not send.is_acknowledged or send.key not in final:
            continue
        if send.value in final[send.key]:
            if drained and (send.key, send.value) not in polled:
                yield Anomaly("unseen", str(send))
        elif not policies.let_go(send):
            yield Anomaly("lost-write", str(send))
    for (partition, value), poll in polled.items():
        if partition in final and value not in final[partition]:
            known = sent.get((partition, value))
            if known is None or not policies.let_go(known):
                yield Anomaly(
                    "lost-read", f"{poll.process} got {value!r} of {partition} at {poll.time:.3f}; it is gone"
                )
    for partition, by_offset in places.items():
        for offset, values in by_offset.items():
            for value in values:
                known = sent.get((partition, value))
                if known is None:
                    yield Anomaly("phantom", f"{partition} offset {offset} has {value!r}, which was never sent there")
                elif known.status is Status.FAIL:
                    yield Anomaly("failed-read", f"{partition} offset {offset} has what was refused: {known}")


def _check_polls(history: History, sends: list[Operation], places: Places, policies: Policies) -> Iterator[Anomaly]:
    known = {partition: sorted(by_offset) for partition, by_offset in places.items()}
    sent = {(send.key, send.value): send for send in sends}
    for partition in history.compacted & history.finals.keys():
        # It is unknown when compaction removed a record, and from which replicas.
        finals = history.finals[partition].items()
        kept = [
            offset
            for offset, value in finals
            if (partition, value) not in sent or not policies.let_go(sent[partition, value])
        ]
        known[partition] = sorted(kept)
    last_offset: dict[tuple[str, str], int] = {}
    for poll in history.polls:
        place = poll.process, poll.partition
        previous = None if poll.resumed else last_offset.get(place)
        for offset, _ in poll.records:
            if previous is not None:
                if offset <= previous:
                    yield Anomaly(
                        "nonmonotonic-poll",
                        f"{poll.process} got offset {offset} of {poll.partition} after {previous}, at {poll.time:.3f}",
                    )
                elif offset > previous + 1:
                    yield from _check_skipped(poll.process, poll.partition, known[poll.partition], previous, offset)
            previous = offset
        assert previous is not None
        last_offset[place] = previous


def _check_skipped(process: str, partition: str, known: list[int], previous: int, offset: int) -> Iterator[Anomaly]:
    skipped = [one for one in known if previous < one < offset]
    if skipped:
        yield Anomaly("poll-skip", f"{process} went from {previous} to {offset} of {partition}, past {skipped}")


def _check_send_order(sends: list[Operation], places: Places) -> Iterator[Anomaly]:
    offset_of = {
        (partition, value): offset
        for partition, by_offset in places.items()
        for offset, values in by_offset.items()
        for value in values
    }
    latest: dict[tuple[str, str], tuple[int, Operation]] = {}
    for send in sends:
        offset = send.result if send.result is not None else offset_of.get((send.key, send.value))
        if offset is None or send.status is Status.FAIL:
            continue
        before = latest.get((send.process, send.key))
        if before is not None and offset < before[0]:
            yield Anomaly("nonmonotonic-send", f"{before[1]} and then {send}, which lies before it at {offset}")
        else:
            latest[send.process, send.key] = offset, send


def _check_registers(operations: list[Operation]) -> Iterator[Anomaly]:
    """Committed offsets and metadata: a read sees the newest finished write, or one that may have come later."""
    writes: dict[tuple[Kind, str], list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.kind in (Kind.COMMIT, Kind.CHANGE) and operation.status is not Status.FAIL:
            writes[operation.kind, operation.key].append(operation)
    for read in operations:
        kind = READS_OF.get(read.kind)
        if kind is not None and read.status is Status.OK:
            yield from _check_read(read, writes[kind, read.key])


def _check_read(read: Operation, writes: list[Operation]) -> Iterator[Anomaly]:
    finished = [
        write
        for write in writes
        if write.status is Status.OK and write.completed is not None and write.completed < read.invoked
    ]
    assert read.completed is not None
    origins = [write for write in writes if write.value == read.result and write.invoked <= read.completed]
    if not origins:
        if read.result is not None:
            yield Anomaly("phantom-value", f"this read what was never written: {read}")
        elif finished:
            yield Anomaly("lost-update", f"{finished[-1]} is gone: {read}")
        return
    if read.result is None and not finished:
        return
    for origin in origins:
        overwritten = [write for write in finished if write.invoked > _last_effect(origin)]
        if not overwritten:
            return
    yield Anomaly("lost-update", f"{overwritten[-1]} was finished, and this read an older value: {read}")


def _last_effect(write: Operation) -> float:
    """The last moment at which a write can have taken effect."""
    if write.status is not Status.OK or write.attempts > 1 or write.completed is None:
        return float("inf")
    return write.completed


def _shorten(found: list[Anomaly]) -> list[Anomaly]:
    by_kind: dict[str, list[Anomaly]] = defaultdict(list)
    for anomaly in found:
        by_kind[anomaly.kind].append(anomaly)
    shortened = []
    for kind, anomalies in by_kind.items():
        shortened += anomalies[:TOLD_MAX]
        if len(anomalies) > TOLD_MAX:
            shortened.append(Anomaly(kind, f"and {len(anomalies) - TOLD_MAX} more"))
    return shortened
