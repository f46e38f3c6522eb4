"""The anomalies of transactions, for readers of committed records.

    G1a                  something was read that an aborted transaction wrote
    G1c                  transactions that read each other's records in a circle, or one that read its own
    torn-transaction     a part of a transaction's records is there at the end, another part is not
    duplicate-copy       two committed copies of one record
    lost-copy            a record whose copy is not there, though the copying job is at the end
    stray-copy           a copy of something that is not there
    zombie-acknowledged  a producer was told that something worked which it asked for after its successor had started

G1c has edges from who wrote to who read. The order in which transactions wrote to one partition adds none: Kafka lets
them interleave, so what comes later there may well be read by who wrote before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from support.history import Anomaly, History, Kind, Operation, Status, Transaction


def check_transactions(history: History) -> Iterator[Anomaly]:
    """Every anomaly of the transactions in a history; it is pure."""
    writer = {(send.key, send.value): one for one in history.transactions for send in one.sends}
    yield from _check_aborted_reads(history, writer)
    yield from _check_circles(history, writer)
    yield from _check_torn(history)
    yield from _check_copies(history)
    yield from _check_zombies(history.operations)


Writers = dict[tuple[str, str], Transaction]


def _check_aborted_reads(history: History, writer: Writers) -> Iterator[Anomaly]:
    seen: dict[tuple[str, int, str], str] = {}
    for poll in history.polls:
        for offset, value in poll.records:
            seen.setdefault((poll.partition, offset, value), f"{poll.process} at {poll.time:.3f}")
    for partition, records in history.finals.items():
        for offset, value in records.items():
            seen.setdefault((partition, offset, value), "the last reader")
    for (partition, offset, value), reader in seen.items():
        transaction = writer.get((partition, value))
        if transaction is not None and transaction.status is Status.FAIL:
            yield Anomaly("G1a", f"{reader} got {value!r}, offset {offset} of {partition}, of an aborted {transaction}")


def _check_circles(history: History, writer: Writers) -> Iterator[Anomaly]:
    """Depth first along who read what; each circle is told once."""
    readers: dict[Transaction, dict[Transaction, tuple[str, str]]] = defaultdict(dict)
    for transaction in history.transactions:
        for partition, _, value in transaction.reads:
            written_by = writer.get((partition, value))
            if written_by is not None:
                readers[written_by][transaction] = partition, value
    done: set[Transaction] = set()
    for start in history.transactions:
        path: list[Transaction] = []
        stack = [(start, iter(readers.get(start, ())))] if start not in done else []
        if stack:
            path.append(start)
        while stack:
            transaction, following = stack[-1]
            after = next(following, None)
            if after is None:
                stack.pop()
                done.add(path.pop())
            elif after in path:
                yield Anomaly("G1c", _circle(path[path.index(after) :], readers))
            elif after not in done:
                path.append(after)
                stack.append((after, iter(readers.get(after, ()))))


def _circle(path: list[Transaction], readers: dict[Transaction, dict[Transaction, tuple[str, str]]]) -> str:
    steps = zip(path, [*path[1:], path[0]], strict=True)
    told = (f"{after.process} read {' '.join(readers[before][after])} of {before.process}" for before, after in steps)
    return f"{'; '.join(told)}: {', '.join(map(str, path))}"


def _check_torn(history: History) -> Iterator[Anomaly]:
    """A producer that requests a commit has acknowledgements for all that it wrote: all of it is there, or nothing."""
    final = {partition: set(records.values()) for partition, records in history.finals.items()}
    for transaction in history.transactions:
        sends = [one for one in transaction.sends if one.key in final]
        if not transaction.commit_asked or not sends:
            continue
        missing = [one for one in sends if one.value not in final[one.key]]
        if missing and len(missing) < len(sends):
            yield Anomaly("torn-transaction", f"{', '.join(map(str, missing))} is missing of a {transaction}")


def _check_copies(history: History) -> Iterator[Anomaly]:
    sources, targets = history.copied
    copies: dict[tuple[str, int], list[str]] = defaultdict(list)
    made = {(one.key, one.value): one.copy_of for one in history.operations if one.copy_of is not None}
    for partition in targets:
        for offset, value in history.finals.get(partition, {}).items():
            source = made.get((partition, value))
            if source is not None:
                copies[source].append(f"{partition} offset {offset} ({value!r})")
    for source, found in copies.items():
        if len(found) > 1:
            yield Anomaly("duplicate-copy", f"{source[0]} offset {source[1]} has the copies {', '.join(found)}")
        if source[0] in history.finals and source[1] not in history.finals[source[0]]:
            yield Anomaly("stray-copy", f"{source[0]} has nothing at offset {source[1]}, and this copy: {found[0]}")
    for partition in sources:
        for offset, value in history.finals.get(partition, {}).items():
            if (partition, offset) not in copies:
                yield Anomaly("lost-copy", f"{partition} offset {offset} ({value!r}) has no copy")


def _check_zombies(operations: list[Operation]) -> Iterator[Anomaly]:
    """Producers of one transactional id are processes of their own; each start shuts out those that started before."""
    starts: dict[str, list[Operation]] = defaultdict(list)
    started: dict[tuple[str, str], Operation] = {}
    for operation in operations:
        if operation.kind is Kind.START and operation.status is Status.OK:
            starts[operation.key].append(operation)
            started[operation.key, operation.process] = operation
    for operation in operations:
        transaction = operation.transaction
        if transaction is None or operation.status is not Status.OK:
            continue
        own = started.get((transaction.transactional_id, operation.process))
        if own is None:
            continue
        for start in starts[transaction.transactional_id]:
            if _is_after(start, own) and start.completed is not None and start.completed < operation.invoked:
                yield Anomaly("zombie-acknowledged", f"{operation} comes after {start}")
                break


def _is_after(start: Operation, own: Operation) -> bool:
    """Whether a start came after another one: the epochs that they were given tell."""
    return start.process != own.process and bool(start.result > own.result)
