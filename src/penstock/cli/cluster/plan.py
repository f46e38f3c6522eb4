"""Computes reassignment plans that spread replicas evenly, or drain a broker, with few moves. Pure.

A plan is the new list of replicas for each partition that changes, the preferred leader first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from penstock.client.view import BrokerView
from penstock.model.ids import TopicPartition

Assignment = Mapping[TopicPartition, tuple[int, ...]]
Plan = dict[TopicPartition, tuple[int, ...]]


class CannotPlace(Exception):
    """There are not enough brokers for the replicas of some partitions; `partitions` names them."""

    def __init__(self, partitions: Sequence[TopicPartition], needed: int, available: int) -> None:
        super().__init__(f"{len(partitions)} partitions have {needed} replicas, and {available} brokers would be left")
        self.partitions = tuple(partitions)
        self.needed = needed
        self.available = available


def drain(assignment: Assignment, brokers: Iterable[BrokerView], leaving: int) -> Plan:
    """Replace each replica on `leaving` by one on another broker, at the same position; raises CannotPlace."""
    board = _Board(assignment, [broker for broker in brokers if broker.node_id != leaving])
    moved = [name for name, replicas in assignment.items() if leaving in replicas]
    stuck = [name for name in moved if not board.candidates(name, leaving)]
    if stuck:
        needed = max(len(assignment[name]) for name in stuck)
        raise CannotPlace(stuck, needed, len(board.racks))
    for name in moved:
        candidates = board.candidates(name, leaving)
        board.move(name, leaving, min(candidates, key=lambda broker: board.cost(name, leaving, broker)))
    return board.plan()


def rebalance(assignment: Assignment, brokers: Iterable[BrokerView]) -> Plan:
    """Spread replicas over racks and brokers, and preferred leaders over brokers, each to within one if possible.

    Replicas on brokers that are not in `brokers` stay where they are.
    """
    board = _Board(assignment, brokers)
    board.spread_racks()
    board.level_replicas()
    board.level_leaders()
    return board.plan()


class _Board:
    """An assignment that is being changed, with the sums that decisions need."""

    def __init__(self, assignment: Assignment, brokers: Iterable[BrokerView]) -> None:
        self._before = assignment
        self._now = {name: list(replicas) for name, replicas in assignment.items()}
        self.racks = {broker.node_id: broker.rack for broker in sorted(brokers, key=lambda broker: broker.node_id)}
        self._held: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in self.racks}
        self._by_topic: Counter[tuple[int, str]] = Counter()
        for name, replicas in self._now.items():
            for replica in replicas:
                self._held.setdefault(replica, {})[name] = None
                self._by_topic[replica, name.topic] += 1

    def plan(self) -> Plan:
        """The differences from the original assignment."""
        return {name: tuple(now) for name, now in self._now.items() if tuple(now) != tuple(self._before[name])}

    def candidates(self, name: TopicPartition, leaving: int) -> list[int]:
        """Brokers that could hold the replica of `leaving` instead."""
        held = set(self._now[name])
        return [broker for broker in self.racks if broker not in held and broker != leaving]

    def cost(self, name: TopicPartition, source: int, target: int) -> tuple[int, int, int, int]:
        """Less is better: racks used twice, then replicas on the target, of this topic and in all."""
        load = len(self._held[target])
        return (self._shared_racks(name, source, target), load, self._by_topic[target, name.topic], target)

    def move(self, name: TopicPartition, source: int, target: int) -> None:
        """Move a replica to another broker, at the same position of the list."""
        replicas = self._now[name]
        replicas[replicas.index(source)] = target
        self._held[source].pop(name, None)
        self._held[target][name] = None
        self._by_topic[source, name.topic] -= 1
        self._by_topic[target, name.topic] += 1

    def spread_racks(self) -> None:
        """Separate replicas that share a rack while another rack has none of the partition."""
        if len(set(self.racks.values())) < 2:
            return
        for name, replicas in self._now.items():
            for replica in reversed(list(replicas)):
                if replica not in self.racks:
                    continue
                shared = self._shared_racks(name, replica, replica)
                better = [
                    broker
                    for broker in self.candidates(name, replica)
                    if self._shared_racks(name, replica, broker) < shared
                ]
                if better:
                    self.move(name, replica, min(better, key=lambda broker: len(self._held[broker])))

    def level_replicas(self) -> None:
        """Move replicas from full brokers to empty ones until no move reduces the difference."""
        while self._level_once():
            pass

    def _level_once(self) -> bool:
        by_load = sorted(self.racks, key=lambda broker: (len(self._held[broker]), broker))
        for source in reversed(by_load):
            for target in by_load:
                if len(self._held[source]) - len(self._held[target]) < 2:
                    break
                name = self._best_move(source, target)
                if name is not None:
                    self.move(name, source, target)
                    return True
        return False

    def _best_move(self, source: int, target: int) -> TopicPartition | None:
        """The best partition to move: no shared racks, a topic crowded on the source, followers before leaders."""
        found: tuple[int, bool, TopicPartition] | None = None
        for name in self._held[source]:
            if name in self._held[target]:
                continue
            if self._shared_racks(name, source, target) > self._shared_racks(name, source, source):
                continue
            crowd = self._by_topic[target, name.topic] - self._by_topic[source, name.topic]
            rank = (crowd, self._now[name][0] == source, name)
            if found is None or rank < found:
                found = rank
        return found[2] if found is not None else None

    def level_leaders(self) -> None:
        """Reorder replicas, which moves no data, until preferred leaders are spread to within one if possible."""
        leads: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in self.racks}
        for name, replicas in self._now.items():
            if replicas and replicas[0] in leads:
                leads[replicas[0]][name] = None
        while path := self._leader_path(leads):
            for source, name, target in path:
                replicas = self._now[name]
                position = replicas.index(target)
                replicas[0], replicas[position] = replicas[position], replicas[0]
                del leads[source][name]
                leads[target][name] = None

    def _leader_path(self, leads: Mapping[int, Mapping[TopicPartition, None]]) -> list[tuple[int, TopicPartition, int]]:
        """A chain of changes that moves one leadership from a broker with many to one with at least two fewer."""
        for start in sorted(leads, key=lambda broker: (-len(leads[broker]), broker)):
            steps: dict[int, tuple[int, TopicPartition, int]] = {}
            queue = deque([start])
            while queue:
                source = queue.popleft()
                for name in leads[source]:
                    for target in self._now[name][1:]:
                        if target not in leads or target == start or target in steps:
                            continue
                        steps[target] = (source, name, target)
                        if len(leads[start]) - len(leads[target]) >= 2:
                            return _trace(steps, start, target)
                        queue.append(target)
        return []

    def _shared_racks(self, name: TopicPartition, source: int, target: int) -> int:
        """How many replicas would share a rack if the one on `source` were on `target`."""
        racks = [
            self.racks.get(target if replica == source else replica)
            for replica in self._now[name]
            if (target if replica == source else replica) in self.racks
        ]
        known = [rack for rack in racks if rack is not None]
        return len(known) - len(set(known))


def _trace(
    steps: Mapping[int, tuple[int, TopicPartition, int]], start: int, end: int
) -> list[tuple[int, TopicPartition, int]]:
    path = []
    at = end
    while at != start:
        path.append(steps[at])
        at = steps[at][0]
    return list(reversed(path))
