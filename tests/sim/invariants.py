"""What must hold inside the cluster at every moment: looked at from outside, while nothing runs.

two-leaders        two nodes lead a partition in one leader epoch, or the quorum in one epoch
bad-isr            in-sync replicas that are no replicas, or a leader that is none of them
leader-behind      the newest leader's log ends before what was committed
different-logs     replicas disagree about what lies below the high watermark
different-metadata nodes disagree about a partition in one partition epoch
two-decisions      a transaction was committed here and aborted there
too-many-watchers  a leader keeps sessions of followers that have ended
deleted-early      retention deleted what it had to keep
hole               a log that a node has opened lacks offsets in its middle
returned           a key's deletion is gone, and what it had before is still there
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.core.metadata.image import PartitionState
from penstock.node import Node
from penstock.runtime.replication.partition import Partition
from penstock.wire.kernel import scan_batches
from penstock.wire.records import ControlType, control_type, read_header, read_records
from sim.disk import DATA, MORE_DATA, Directory, Inode
from sim.machine import Machine
from sim.scheduler import SECOND_US
from sim.world import TOPIC, World
from support.history import Anomaly, Kind, Operation, Status

LOOK_US = 50_000
OFFSET_MAX = 2**63 - 1

PartitionKey = tuple[str, int, bytes]


class Watch:
    """Lets a world run and looks at it now and then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._found: dict[str, Anomaly] = {}
        self._leaders: dict[tuple[Any, ...], int] = {}
        self._states: dict[tuple[Any, ...], Any] = {}
        # By partition: the newest epoch in which a broker led, and how far anything was committed.
        self._epochs: dict[PartitionKey, int] = {}
        self._committed: dict[PartitionKey, int] = {}
        # The logs that were looked at since their nodes started.
        self._opened: set[tuple[str, int, PartitionKey]] = set()
        # By partition, when its leaders' logs were first seen to start at or after an offset.
        self._starts: dict[str, list[tuple[float, int]]] = {}

    @property
    def anomalies(self) -> list[Anomaly]:
        return list(self._found.values())

    def run(self, seconds: float, done: Callable[[], bool] | None = None) -> bool:
        """As `World.run`, with a look every so often."""
        scheduler = self._world.scheduler
        until_us = scheduler.now_us + int(seconds * SECOND_US)
        while scheduler.now_us < until_us:
            if scheduler.run(min(scheduler.now_us + LOOK_US, until_us), done):
                return True
            self.look()
        return done is not None and done()

    def look(self) -> None:
        """Look at every node that runs."""
        for machine in self._world.machines.values():
            if machine.state == "up" and machine.node is not None:
                self._look_at_quorum(machine, machine.node)
                self._look_at_image(machine, machine.node)
                self._look_at_partitions(machine, machine.node)

    def look_at_sessions(self) -> None:
        """Once all is quiet, what leaders keep for their followers is bounded by the number of brokers."""
        followers_max = 2 * self._world.shape.nodes
        for machine in self._world.machines.values():
            if machine.state != "up" or machine.node is None:
                continue
            for partition in partitions_of(machine.node):
                if len(partition.watchers) > followers_max:
                    self._report(
                        "too-many-watchers",
                        f"{machine.name} has {len(partition.watchers)} watchers of {partition.name}",
                    )

    def _report(self, kind: str, text: str) -> None:
        self._found.setdefault(kind, Anomaly(kind, f"[{self._world.now_s:.3f}] {text}"))

    def _lead(self, machine: Machine, *what: Any) -> None:
        leader = self._leaders.setdefault(what, machine.node_id)
        if leader != machine.node_id:
            self._report("two-leaders", f"n{leader} and {machine.name} both led {what}")

    def _look_at_quorum(self, machine: Machine, node: Node) -> None:
        quorum = getattr(node._raft, "quorum", None)
        if quorum is not None and quorum.role.value == "leader":
            self._lead(machine, "quorum", quorum.epoch)

    def _look_at_image(self, machine: Machine, node: Node) -> None:
        for topic in node._raft.image.topics.values():
            for index, state in enumerate(topic.partitions):
                key = topic.topic_id, index, state.partition_epoch
                known = self._states.get(key)
                if known is state:
                    continue
                if known is not None and known != state:
                    self._report(
                        "different-metadata",
                        f"{machine.name} has {_told(state)} of {topic.name}, others {_told(known)}",
                    )
                self._states[key] = state
                outside = {*state.in_sync_replicas, *state.eligible_leader_replicas} - set(state.replicas)
                if outside or set(state.in_sync_replicas) & set(state.eligible_leader_replicas):
                    self._report("bad-isr", f"{topic.name}-{index}: {_told(state)}")
                if state.leader >= 0 and state.leader not in state.in_sync_replicas:
                    self._report("bad-isr", f"the leader is not in sync: {topic.name}-{index}: {_told(state)}")

    def _look_at_partitions(self, machine: Machine, node: Node) -> None:
        for partition in partitions_of(node):
            key: PartitionKey = (*partition.name, partition.topic_id)
            opened = machine.name, machine.incarnation, key
            if opened not in self._opened:
                self._opened.add(opened)
                self._look_for_holes(machine, partition)
            if not partition.is_leader:
                continue
            epoch = partition.leader_epoch
            self._lead(machine, key, epoch)
            if epoch >= self._epochs.get(key, -1):
                self._epochs[key] = epoch
                committed = self._committed.get(key, 0)
                if partition.log.end_offset < committed:
                    self._report(
                        "leader-behind",
                        f"{machine.name} leads {partition.name} in epoch {epoch} up to {partition.log.end_offset}, "
                        f"and {committed} was committed",
                    )
                self._committed[key] = max(committed, _kept(partition))
                self._look_at_start(partition)

    def _look_for_holes(self, machine: Machine, partition: Partition) -> None:
        """A crash may leave a shorter log, and never one that continues behind what it lacks.

        Where a bit of a length rots, the batches behind it cannot be read until the replica is replaced.
        """
        name = f"{partition.name.topic}-{partition.name.partition}"
        if (
            partition.name.topic != TOPIC
            or name in self._world.history.compacted
            or name in machine.damaged
            or name in machine.rotten
        ):
            return
        next_offset = -1
        for base_offset, batch in sorted(batches_of(machine, name, OFFSET_MAX).items()):
            if -1 < next_offset != base_offset:
                self._report("hole", f"{machine.name} opened {name} without {next_offset} to {base_offset - 1}")
            next_offset = read_header(batch).next_offset

    def _look_at_start(self, partition: Partition) -> None:
        start = partition.log.start_offset
        seen = self._starts.setdefault(f"{partition.name.topic}-{partition.name.partition}", [(0.0, 0)])
        if start > seen[-1][1]:
            seen.append((self._world.now_s, start))

    def deletions(self, clocks_jump: bool) -> Iterator[Anomaly]:
        """Records that were deleted although nothing asked for it; a wrong clock makes them look old."""
        shape, history = self._world.shape, self._world.history
        by_age_s = math.inf if shape.retention_ms is None else shape.retention_ms / 1000
        if clocks_jump and shape.retention_ms is not None:
            by_age_s = 0.0
        for send in history.operations:
            if send.kind is not Kind.SEND or not isinstance(send.result, int):
                continue
            if send.result < history.trimmed.get(send.key, 0):
                continue
            gone_s = next((time for time, start in self._starts.get(send.key, ()) if start > send.result), None)
            if gone_s is None or gone_s - send.invoked >= by_age_s:
                continue
            if (
                shape.retention_bytes is None
                or history.starts[send.key] == max(history.finals[send.key], default=-1) + 1
            ):
                yield Anomaly("deleted-early", f"[{gone_s:.3f}] {send}")


def _kept(partition: Partition) -> int:
    """Up to where a leader has to keep its log; what only one replica has counts once it is on disk."""
    leading = partition.leading
    if leading is not None and len(leading.in_sync_replicas) == 1:
        return min(partition.high_watermark, partition.log.flushed_offset)
    return partition.high_watermark


def _told(state: PartitionState) -> str:
    return (
        f"replicas {state.replicas}, in sync {state.in_sync_replicas}, eligible {state.eligible_leader_replicas}, "
        f"leader {state.leader}, leader epoch {state.leader_epoch}, partition epoch {state.partition_epoch}"
    )


def partitions_of(node: Node) -> Iterable[Partition]:
    """The partitions that a node has."""
    return node._broker.partitions if node._broker is not None else ()


# At the end.


def compare_logs(world: World) -> Iterator[Anomaly]:
    """Once everything has settled all replicas of a partition have the same bytes on their disks.

    Replicas delete and compact each on their own: what they all have counts, and the latest record of each key.
    """
    for name, final in world.history.finals.items():
        if not final:
            continue
        end_offset = max(final) + 1
        logs = {
            node_id: batches_of(world.machines[node_id], name, end_offset) for node_id in world.replicas.get(name, ())
        }
        if not logs:
            yield Anomaly("different-logs", f"{name}: no replica reports having it")
            continue
        if name in world.history.compacted:
            yield from _compare_compacted(name, logs)
            continue
        start_offset = max(_start(world.machines[node_id], name) for node_id in logs)
        if start_offset:
            logs = {node_id: _from(log, start_offset) for node_id, log in logs.items()}
        first, *others = logs
        for other in others:
            if logs[other] != logs[first]:
                yield Anomaly("different-logs", f"{name}: {_difference(first, logs[first], other, logs[other])}")


def _from(log: dict[int, bytes], start_offset: int) -> dict[int, bytes]:
    return {offset: batch for offset, batch in log.items() if offset >= start_offset}


def _compare_compacted(name: str, logs: dict[int, dict[int, bytes]]) -> Iterator[Anomaly]:
    records = {node_id: _records(log) for node_id, log in logs.items()}
    first, *others = records
    latest = {
        node_id: {key: (offset, value) for offset, (key, value) in found.items()} for node_id, found in records.items()
    }
    for other in others:
        one, two = records[first], records[other]
        differing = sorted(offset for offset in one.keys() & two.keys() if one[offset] != two[offset])
        keys = sorted(
            key
            for key in latest[first].keys() | latest[other].keys()
            if latest[first].get(key) != latest[other].get(key)
        )
        if differing:
            yield Anomaly("different-logs", f"{name}, compacted: n{first} and n{other} differ at {differing[:5]}")
        if keys:
            yield Anomaly("different-latest", f"{name}, compacted: n{first} and n{other} differ in keys {keys[:5]}")


def compare_deletions(world: World) -> Iterator[Anomaly]:
    """Of a key that was deleted last no replica has anything, unless it has the deletion, too."""
    last: dict[tuple[str, str | None], Operation] = {}
    for send in world.history.operations:
        if send.kind is Kind.SEND and send.key in world.history.compacted:
            last[send.key, send.record_key] = send
    for (name, key), send in last.items():
        # Others may have been written after it; and what was acknowledged before a loss may be lost.
        is_sure = send.is_tombstone and send.status is Status.OK and isinstance(send.result, int)
        if not is_sure or send.invoked < world.lost_s:
            continue
        for node_id in world.replicas.get(name, ()):
            found = _records(batches_of(world.machines[node_id], name, OFFSET_MAX))
            offsets = [offset for offset, (record_key, _) in found.items() if record_key == (key or "").encode()]
            if offsets and max(offsets) < send.result:
                yield Anomaly("returned", f"n{node_id} has {key} of {name} at {max(offsets)}: {send} deleted it")


def _records(log: dict[int, bytes]) -> dict[int, tuple[bytes, bytes]]:
    """By offset, key and value of the records in batches."""
    found: dict[int, tuple[bytes, bytes]] = {}
    for _, batch in sorted(log.items()):
        if not read_header(batch).is_control:
            for record in read_records(batch, len(batch), 0):
                found[record.offset] = bytes(record.key or b""), bytes(record.value or b"")
    return found


def compare_decisions(world: World) -> Iterator[Anomaly]:
    """A transaction of version 2 has its epoch for itself: all markers with that epoch say the same."""
    starts = [one for one in world.history.operations if one.kind is Kind.START and one.status is Status.OK]
    producer_ids = {one.result[0] for one in starts if one.key in world.epoch_bumpers}
    decisions: dict[tuple[int, int], dict[ControlType | None, str]] = {}
    for topic in world.topics:
        for partition in range(world.shape.partitions):
            for machine in world.machines.values():
                for offset, batch in batches_of(machine, f"{topic}-{partition}", OFFSET_MAX).items():
                    header = read_header(batch)
                    if header.is_control and header.producer_id in producer_ids:
                        key = next(iter(read_records(batch, len(batch), 0))).key
                        place = f"{topic}-{partition} offset {offset}"
                        known = decisions.setdefault((header.producer_id, header.producer_epoch), {})
                        known.setdefault(control_type(key), place)
    for (producer_id, epoch), places in decisions.items():
        if len(places) > 1:
            yield Anomaly("two-decisions", f"producer {producer_id} epoch {epoch}: {places}")


def batches_of(machine: Machine, name: str, end_offset: int) -> dict[int, bytes]:
    """By base offset, the batches of a partition below an offset as they are on a machine's disk."""
    found: dict[int, bytes] = {}
    directory = _directory(machine, name)
    if directory is None:
        return found
    for file_name in sorted(directory.entries):
        inode = directory.entries[file_name]
        if file_name.endswith(".log") and isinstance(inode, Inode):
            content = bytes(inode.data)
            for position, *_ in scan_batches(content, 0, len(content), check_crc=True).batches:
                header = read_header(content, position)
                if header.base_offset < end_offset:
                    found[header.base_offset] = content[position : position + header.size_bytes]
    return found


def rot_is_found(world: World) -> bool:
    """Whether no replica has a batch any more in which a bit flipped: it is replicated anew where others have it."""
    return all(_is_intact(machine, name) for machine in world.machines.values() for name in machine.rotten)


def _is_intact(machine: Machine, name: str) -> bool:
    directory = _directory(machine, name)
    if directory is None:
        return True
    for file_name, inode in directory.entries.items():
        if file_name.endswith(".log") and isinstance(inode, Inode):
            content = bytes(inode.data)
            scan = scan_batches(content, 0, len(content), check_crc=True)
            if scan.problem is not None or content[scan.position :].strip(b"\0"):
                return False
    return True


def _directory(machine: Machine, name: str) -> Directory | None:
    """A partition's directory on a machine's disk; after a move the old one may still be there, and the node knows."""
    found: dict[str, Directory] = {}
    for parent in (DATA, MORE_DATA):
        data = machine.disk.root.entries[parent]
        assert isinstance(data, Directory)
        directory = data.entries.get(name)
        if isinstance(directory, Directory):
            found[parent] = directory
    if len(found) > 1 and machine.node is not None and machine.node._broker is not None:
        topic, _, number = name.rpartition("-")
        partition = machine.node._broker.partitions.get(topic, int(number))
        if partition is not None:
            return found[partition.log.directory.parent.name]
    return next(iter(found.values()), None)


def _start(machine: Machine, name: str) -> int:
    """Where a partition's first segment on a machine's disk begins."""
    directory = _directory(machine, name)
    assert directory is not None
    return min(int(file_name.partition(".")[0]) for file_name in directory.entries if file_name.endswith(".log"))


def _difference(first: int, one: dict[int, bytes], second: int, other: dict[int, bytes]) -> str:
    for offset in sorted(one.keys() | other.keys()):
        if one.get(offset) != other.get(offset):
            return (
                f"n{first} has {_shown(one.get(offset))} at offset {offset}, n{second} has {_shown(other.get(offset))}"
            )
    return "nothing differs"


def _shown(batch: bytes | None) -> str:
    if batch is None:
        return "nothing"
    header = read_header(batch)
    return f"a batch of epoch {header.partition_leader_epoch}, producer {header.producer_id}, crc {header.crc:08x}"
