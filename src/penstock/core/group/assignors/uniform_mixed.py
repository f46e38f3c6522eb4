"""The `uniform` assignor for members that subscribe to different topics.

1. Members keep what they have of the topics they still subscribe to.
2. Free partitions go to the least loaded subscriber of their topic, topics with the most partitions per subscriber
   first.
3. Topic by topic, the most loaded owner gives a partition to the least loaded subscriber while they differ by two or
   more. That balances everything but overlapping subscriptions, and moves little, since every move helps.
4. Overlapping subscriptions may need chains: a gives b a partition of one topic so that b can give c one of another.
   A search finds the shortest chain from the most loaded members to one with at least two partitions less. When no
   chain is left, no assignment is more balanced than this one.

The search in step 4 stops after `SEARCH_STEPS_MAX` steps, with an assignment that is complete but may be less balanced.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from penstock.core.group.assignors.contract import GroupSpec, Partitions
from penstock.model.ids import Uuid

BALANCE_ROUNDS_MAX = 16
SEARCH_STEPS_MAX = 500_000


def assign_mixed(group: GroupSpec) -> dict[str, Partitions]:
    """A balanced assignment for subscriptions that differ; see the module for what it optimises."""
    plan = _Plan(group)
    plan.assign_free_partitions()
    for _ in range(BALANCE_ROUNDS_MAX):
        if not sum(plan.balance_topic(topic_id) for topic_id in plan.topics):
            break
    plan.balance_chains()
    return plan.result()


class _Plan:
    """An assignment being built. Members are numbered in the order of their ids."""

    def __init__(self, group: GroupSpec) -> None:
        self.group = group
        self.member_ids = sorted(group.members)
        self.racks = [group.members[member_id].rack_id for member_id in self.member_ids]
        self.subscribers: dict[Uuid, list[int]] = {}
        for member, member_id in enumerate(self.member_ids):
            for topic_id in group.members[member_id].topics:
                self.subscribers.setdefault(topic_id, []).append(member)
        self.topics = sorted(self.subscribers, key=self._topic_order)
        self.loads = [0] * len(self.member_ids)
        # What each member owns of each topic: these are the members that could give a partition away.
        self.owned: dict[Uuid, dict[int, set[int]]] = {topic_id: {} for topic_id in self.topics}
        self.free = {topic_id: set(range(group.partition_counts[topic_id])) for topic_id in self.topics}
        for member, member_id in enumerate(self.member_ids):
            for topic_id, partitions in group.members[member_id].assigned.items():
                if topic_id in group.members[member_id].topics:
                    kept = partitions & self.free[topic_id]
                    self.free[topic_id] -= kept
                    if kept:
                        self.owned[topic_id][member] = set(kept)
                        self.loads[member] += len(kept)

    def _topic_order(self, topic_id: Uuid) -> tuple[float, int, Uuid]:
        subscriber_count = len(self.subscribers[topic_id])
        return (-self.group.partition_counts[topic_id] / subscriber_count, subscriber_count, topic_id)

    def assign_free_partitions(self) -> None:
        for topic_id in self.topics:
            if not self.free[topic_id]:
                continue
            heap = [(self.loads[member], member) for member in self.subscribers[topic_id]]
            heapify(heap)
            local = self._heaps_by_rack(topic_id)
            for partition in sorted(self.free[topic_id]):
                member = self._least_loaded(heap)
                if local:
                    member = self._nearest(topic_id, partition, member, local)
                self._give(topic_id, partition, member)
                heappush(heap, (self.loads[member], member))
                if local and self.racks[member] in local:
                    heappush(local[self.racks[member] or ""], (self.loads[member], member))

    def _heaps_by_rack(self, topic_id: Uuid) -> dict[str, list[tuple[int, int]]]:
        heaps: dict[str, list[tuple[int, int]]] = {}
        for member in self.subscribers[topic_id]:
            rack = self.racks[member]
            if rack:
                heaps.setdefault(rack, []).append((self.loads[member], member))
        for heap in heaps.values():
            heapify(heap)
        return heaps

    def _nearest(self, topic_id: Uuid, partition: int, least: int, local: dict[str, list[tuple[int, int]]]) -> int:
        """A member with as few partitions as the least loaded one, in a rack of the partition if there is one."""
        for rack in sorted(self.group.racks(topic_id, partition) & local.keys()):
            member = self._least_loaded(local[rack])
            if self.loads[member] == self.loads[least]:
                return member
        return least

    def _least_loaded(self, heap: list[tuple[int, int]]) -> int:
        """The top of a heap, after removing entries with an outdated load; the entry stays."""
        while heap[0][0] != self.loads[heap[0][1]]:
            heappop(heap)
        return heap[0][1]

    def balance_topic(self, topic_id: Uuid) -> bool:
        """Move partitions of one topic from the most to the least loaded; returns whether any moved."""
        owners = self.owned[topic_id]
        most = [(-self.loads[member], member) for member in owners]
        least = [(self.loads[member], member) for member in self.subscribers[topic_id]]
        heapify(most)
        heapify(least)
        moved = False
        while most:
            load, giver = most[0]
            taker = self._least_loaded(least)
            if -load != self.loads[giver] or giver not in owners:
                heappop(most)
                continue
            if self.loads[giver] - self.loads[taker] < 2:
                break
            self._move(topic_id, giver, taker)
            moved = True
            for member in (giver, taker):
                heappush(least, (self.loads[member], member))
                if member in owners:
                    heappush(most, (-self.loads[member], member))
        return moved

    def balance_chains(self) -> None:
        topics_of: list[list[Uuid]] = [[] for _ in self.member_ids]
        for topic_id, members in self.subscribers.items():
            if len(members) > 1:
                for member in members:
                    topics_of[member].append(topic_id)
        steps = 0
        settled: set[int] = set()
        while steps < SEARCH_STEPS_MAX:
            start = max((m for m in range(len(self.loads)) if m not in settled), key=self._load_order, default=-1)
            if start < 0:
                return
            chain, reached, visited = self._find_chain(start, topics_of)
            steps += visited
            if not chain:
                # A member that was reached has at most as many as the start, and reaches no other member.
                settled |= reached
            for giver, topic_id, taker in chain:
                self._move(topic_id, giver, taker)

    def _load_order(self, member: int) -> tuple[int, int]:
        return (self.loads[member], -member)

    def _find_chain(self, start: int, topics_of: list[list[Uuid]]) -> tuple[list[tuple[int, Uuid, int]], set[int], int]:
        """The shortest chain from a member to one with at least two partitions fewer; whom it reached, and the cost."""
        reached: dict[int, tuple[int, Uuid] | None] = {start: None}
        seen: set[Uuid] = set()
        queue = deque([start])
        visited = 0
        while queue:
            giver = queue.popleft()
            for topic_id in topics_of[giver]:
                if topic_id in seen or giver not in self.owned[topic_id]:
                    continue
                seen.add(topic_id)
                for taker in self.subscribers[topic_id]:
                    visited += 1
                    if taker in reached:
                        continue
                    reached[taker] = (giver, topic_id)
                    if self.loads[taker] <= self.loads[start] - 2:
                        return _path(reached, taker), set(reached), visited
                    queue.append(taker)
        return [], set(reached), visited + 1

    def _move(self, topic_id: Uuid, giver: int, taker: int) -> None:
        """Move the last partition of a topic, or the last one outside the giver's rack."""
        partitions = self.owned[topic_id][giver]
        rack = self.racks[giver]
        chosen = max(partitions)
        if rack:
            chosen = max(partitions, key=lambda p: (rack not in self.group.racks(topic_id, p), p))
        assert giver != taker, "a move is between two members"
        assert self.loads[giver] > 0
        partitions.remove(chosen)
        if not partitions:
            del self.owned[topic_id][giver]
        self.loads[giver] -= 1
        self._give(topic_id, chosen, taker)

    def _give(self, topic_id: Uuid, partition: int, member: int) -> None:
        self.owned[topic_id].setdefault(member, set()).add(partition)
        self.loads[member] += 1

    def result(self) -> dict[str, Partitions]:
        assignment: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in self.group.members}
        for topic_id in self.topics:
            for member, partitions in self.owned[topic_id].items():
                assignment[self.member_ids[member]][topic_id] = frozenset(partitions)
        return {**assignment}


def _path(reached: dict[int, tuple[int, Uuid] | None], end: int) -> list[tuple[int, Uuid, int]]:
    """The moves from the start to `end`, the last one first, so that each giver still has what it gives."""
    path: list[tuple[int, Uuid, int]] = []
    step = reached[end]
    while step is not None:
        giver, topic_id = step
        path.append((giver, topic_id, end))
        end, step = giver, reached[giver]
    return path
