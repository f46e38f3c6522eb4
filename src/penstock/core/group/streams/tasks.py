"""Tasks: each reads one partition of a subtopology's source topics. They are numbered like these partitions.

An active task processes records. A standby keeps a copy of its state on another process, and a warm-up task builds such
a copy before the active task moves there. Kafka 4.3 has warm-up tasks in its messages and records, but assigns none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

Task = tuple[str, int]
Tasks = Mapping[str, frozenset[int]]

NO_TASKS: Tasks = {}


class TasksOfSubtopology(Protocol):
    """A subtopology with tasks; several messages have one, each with its own class."""

    @property
    def subtopology_id(self) -> str:
        """Which subtopology."""

    @property
    def partitions(self) -> Sequence[int]:
        """Which of its tasks."""


class TaskSets(NamedTuple):
    """The tasks of a member by what it does with them."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """Whether there are none at all."""
        return not (self.active or self.standby or self.warmup)

    def has_any_of(self, other: TaskSets) -> bool:
        """Whether a task is in both, in the same role."""
        return any(
            numbers & theirs.get(subtopology, frozenset())
            for ours, theirs in zip(self, other, strict=True)
            for subtopology, numbers in ours.items()
        )

    def is_within(self, other: TaskSets) -> bool:
        """Whether the other has all of these tasks, in the same roles."""
        return all(
            numbers <= theirs.get(subtopology, frozenset())
            for ours, theirs in zip(self, other, strict=True)
            for subtopology, numbers in ours.items()
        )


NO_TASK_SETS = TaskSets()


def tasks_of(rows: Iterable[TasksOfSubtopology]) -> Tasks:
    """Tasks by subtopology, from a message's list."""
    found: dict[str, frozenset[int]] = {}
    for row in rows:
        if row.partitions:
            found[row.subtopology_id] = found.get(row.subtopology_id, frozenset()).union(row.partitions)
    return found


def group_by_subtopology(tasks: Iterable[Task]) -> Tasks:
    """Tasks by subtopology."""
    found: dict[str, list[int]] = {}
    for subtopology, number in tasks:
        found.setdefault(subtopology, []).append(number)
    return {subtopology: frozenset(numbers) for subtopology, numbers in found.items()}


def each_of(tasks: Tasks) -> Iterable[Task]:
    """The tasks one by one."""
    return ((subtopology, number) for subtopology, numbers in tasks.items() for number in numbers)
