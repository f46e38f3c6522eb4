"""The sticky assignor: tasks stay where their state is, as far as members then have equally many.

Members on one process share its disk and its fate, so that a process never has a task twice, and processes are loaded
by how many members they have. The passes:

1. An active task stays with the member that had it, while that member has room for active tasks.
2. Else it moves to a member that had a standby of it, the least loaded one, if that has room.
3. What is left goes to the least loaded process, and to its least loaded member.
4. Standbys of stateful tasks do the same, and prefer the former active member; what has no place is left out.

Room is an equal share of the tasks. It is shared anew among the others whenever a member has got its share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from penstock.core.group.streams.internal_topics import ConfiguredSubtopology
from penstock.core.group.streams.tasks import Task, TaskSets, each_of, group_by_subtopology


class MemberSpec(NamedTuple):
    """A member as the assignor sees it: its process, and its current target assignment."""

    process_id: str
    target: TaskSets


@dataclass(slots=True)
class _Process:
    """What a process and its members have got so far."""

    counts: dict[str, int] = field(default_factory=dict)
    active: dict[str, list[Task]] = field(default_factory=dict)
    standby: dict[str, list[Task]] = field(default_factory=dict)
    tasks: set[Task] = field(default_factory=set)

    @property
    def load(self) -> float:
        return len(self.tasks) / len(self.counts)

    def least_loaded(self) -> str:
        return min(self.counts, key=lambda member_id: (self.counts[member_id], member_id))


@dataclass(slots=True)
class _Share:
    """An equal share of `tasks` for each of `members` that still have room."""

    tasks: int
    members: int

    @property
    def size(self) -> int:
        return -(-self.tasks // self.members) if self.members else 0

    def note(self, count: int) -> None:
        """A member has this many now."""
        if count == self.size:
            assert self.members > 0, "shares are divided among those that have room"
            self.members -= 1
            self.tasks -= count


def assign_sticky(
    members: Mapping[str, MemberSpec], subtopologies: Mapping[str, ConfiguredSubtopology], standby_replicas: int
) -> dict[str, TaskSets]:
    """The new target of every member; the same input always gives the same result."""
    if not members:
        return {}
    assignment = _Assignment(members, subtopologies, standby_replicas)
    assignment.assign_active()
    if standby_replicas:
        assignment.assign_standbys(standby_replicas)
    return assignment.targets()


class _Assignment:
    def __init__(
        self,
        members: Mapping[str, MemberSpec],
        subtopologies: Mapping[str, ConfiguredSubtopology],
        standby_replicas: int,
    ) -> None:
        self._process_of = {member_id: members[member_id].process_id for member_id in sorted(members)}
        self._processes: dict[str, _Process] = {}
        self._former_active: dict[Task, str] = {}
        self._former_standbys: dict[Task, list[str]] = {}
        for member_id, process_id in self._process_of.items():
            self._processes.setdefault(process_id, _Process()).counts[member_id] = 0
            target = members[member_id].target
            self._former_active.update(dict.fromkeys(each_of(target.active), member_id))
            for task in each_of(target.standby):
                self._former_standbys.setdefault(task, []).append(member_id)
        self._active = _tasks(subtopologies)
        self._stateful = _tasks({name: row for name, row in subtopologies.items() if row.is_stateful})
        total = len(self._active) + standby_replicas * len(self._stateful)
        self._active_share = _Share(len(self._active), len(members))
        self._share = _Share(total, len(members))

    def assign_active(self) -> None:
        """Passes 1 to 3."""
        left = sorted(self._active, key=_by_partition)
        left = [task for task in left if not self._return_active(task)]
        left = [task for task in left if not self._promote_standby(task)]
        heap = self._heap()
        assert len(set(left)) == len(left), "each task is placed once"
        assert len(heap) == len(self._processes)
        for task in sorted(left):
            _, process_id = heappop(heap)
            self._put(self._processes[process_id].least_loaded(), task, is_active=True)
            heappush(heap, (self._processes[process_id].load, process_id))

    def _return_active(self, task: Task) -> bool:
        former = self._former_active.get(task)
        if former is None or self._count(former) >= self._active_share.size:
            return False
        self._put(former, task, is_active=True)
        return True

    def _promote_standby(self, task: Task) -> bool:
        formers = self._former_standbys.get(task)
        former = min(formers, key=self._load_of) if formers else None
        if former is None or self._count(former) >= self._active_share.size:
            return False
        self._put(former, task, is_active=True)
        return True

    def assign_standbys(self, replicas: int) -> None:
        """Pass 4."""
        left: list[tuple[Task, int]] = []
        for task in sorted(self._stateful, key=_by_partition, reverse=True):
            placed = 0
            while placed < replicas and self._return_standby(task):
                placed += 1
            if placed < replicas:
                left.append((task, replicas - placed))
        heap = self._heap()
        for task, count in sorted(left, reverse=True):
            for _ in range(count):
                if not self._place_standby(task, heap):
                    break

    def _return_standby(self, task: Task) -> bool:
        active = self._former_active.get(task)
        standbys = sorted(self._former_standbys.get(task, ()), key=self._load_of)
        for former in ([] if active is None else [active]) + standbys:
            has_room = self._count(former) < self._share.size
            if has_room and task not in self._processes[self._process_of[former]].tasks:
                self._put(former, task, is_active=False)
                return True
        return False

    def _place_standby(self, task: Task, heap: list[tuple[float, str]]) -> bool:
        """Put a standby on the least loaded process that does not have the task yet."""
        passed = []
        found = False
        while heap and not found:
            load, process_id = heappop(heap)
            process = self._processes[process_id]
            if task not in process.tasks:
                self._put(process.least_loaded(), task, is_active=False)
                found = True
                load = process.load
            passed.append((load, process_id))
        for entry in passed:
            heappush(heap, entry)
        return found

    def _put(self, member_id: str, task: Task, *, is_active: bool) -> None:
        process = self._processes[self._process_of[member_id]]
        assert task not in process.tasks, "a process never has a task twice"
        process.tasks.add(task)
        (process.active if is_active else process.standby).setdefault(member_id, []).append(task)
        count = process.counts[member_id] = process.counts[member_id] + 1
        if is_active:
            self._active_share.note(count)
        self._share.note(count)

    def _count(self, member_id: str) -> int:
        return self._processes[self._process_of[member_id]].counts[member_id]

    def _load_of(self, member_id: str) -> tuple[float, int]:
        return (self._processes[self._process_of[member_id]].load, self._count(member_id))

    def _heap(self) -> list[tuple[float, str]]:
        heap = [(process.load, process_id) for process_id, process in self._processes.items()]
        heapify(heap)
        return heap

    def targets(self) -> dict[str, TaskSets]:
        """What every member has got."""
        found = {}
        for member_id, process_id in self._process_of.items():
            process = self._processes[process_id]
            active, standby = process.active.get(member_id, ()), process.standby.get(member_id, ())
            found[member_id] = TaskSets(group_by_subtopology(active), group_by_subtopology(standby))
        return found


def _tasks(subtopologies: Mapping[str, ConfiguredSubtopology]) -> list[Task]:
    return [(name, number) for name, row in subtopologies.items() for number in range(row.task_count)]


def _by_partition(task: Task) -> tuple[int, str]:
    return (task[1], task[0])
