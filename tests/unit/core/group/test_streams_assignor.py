"""The sticky assignor of streams groups: every task once, members alike, and little moves."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from penstock.core.group.streams.assignor import MemberSpec, assign_sticky
from penstock.core.group.streams.internal_topics import ConfiguredSubtopology, InternalTopic
from penstock.core.group.streams.tasks import NO_TASK_SETS, Task, TaskSets, each_of

CHANGELOG = {"c": InternalTopic("c", 1, 0, {})}


def subtopology(tasks: int, *, stateful: bool = True) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(tasks, frozenset({"t"}), {}, frozenset(), CHANGELOG if stateful else {})


def members(*names: str, targets: dict[str, TaskSets] | None = None) -> dict[str, MemberSpec]:
    """Members called process/number."""
    return {name: MemberSpec(name.split("/")[0], (targets or {}).get(name, NO_TASK_SETS)) for name in names}


def actives(targets: dict[str, TaskSets]) -> dict[Task, str]:
    found = [(task, name) for name, target in targets.items() for task in each_of(target.active)]
    assert len(found) == len(dict(found)), "a task is active twice"
    return dict(found)


def copies(targets: dict[str, TaskSets]) -> list[tuple[Task, str]]:
    """Each task with the process that has it, active or standby."""
    return [
        (task, name.split("/")[0])
        for name, target in targets.items()
        for role in (target.active, target.standby)
        for task in each_of(role)
    ]


def counts(targets: dict[str, TaskSets]) -> list[int]:
    return sorted(len([*each_of(target.active)]) for target in targets.values())


def test_tasks_are_shared_equally() -> None:
    targets = assign_sticky(members("p/1", "p/2", "q/1"), {"0": subtopology(4), "1": subtopology(4)}, 0)
    assert len(actives(targets)) == 8
    assert counts(targets) == [2, 3, 3]


def test_a_process_with_more_threads_gets_more() -> None:
    targets = assign_sticky(members("p/1", "p/2", "p/3", "q/1"), {"0": subtopology(8)}, 0)
    by_process = Counter(name.split("/")[0] for name in actives(targets).values())
    assert by_process == {"p": 6, "q": 2}


def test_nothing_moves_when_nothing_changes() -> None:
    subtopologies = {"0": subtopology(5), "1": subtopology(3)}
    first = assign_sticky(members("p/1", "q/1", "r/1"), subtopologies, 1)
    assert assign_sticky(members("p/1", "q/1", "r/1", targets=first), subtopologies, 1) == first


def test_a_new_member_takes_no_more_than_its_share() -> None:
    subtopologies = {"0": subtopology(6)}
    first = assign_sticky(members("p/1", "q/1"), subtopologies, 0)
    second = assign_sticky(members("p/1", "q/1", "r/1", targets=first), subtopologies, 0)
    before, after = actives(first), actives(second)
    moved = [task for task in before if before[task] != after[task]]
    assert len(moved) == 2
    assert {after[task] for task in moved} == {"r/1"}


def test_a_standby_becomes_active_where_its_state_is() -> None:
    subtopologies = {"0": subtopology(3)}
    first = assign_sticky(members("p/1", "q/1", "r/1"), subtopologies, 1)
    standbys = {task: name for name, target in first.items() for task in each_of(target.standby)}
    second = assign_sticky(members("p/1", "q/1", targets=first), subtopologies, 1)
    lost = [task for task, name in actives(first).items() if name == "r/1"]
    assert lost
    assert {actives(second)[task] for task in lost} == {standbys[task] for task in lost}


def test_standbys_move_to_a_new_member_too() -> None:
    subtopologies = {"0": subtopology(6)}
    first = assign_sticky(members("p/1", "q/1"), subtopologies, 1)
    second = assign_sticky(members("p/1", "q/1", "r/1", targets=first), subtopologies, 1)
    assert Counter(process for _, process in copies(second)) == {"p": 4, "q": 4, "r": 4}


def test_stateless_tasks_have_no_standbys() -> None:
    targets = assign_sticky(members("p/1", "q/1"), {"0": subtopology(4, stateful=False), "1": subtopology(1)}, 1)
    assert {task for target in targets.values() for task in each_of(target.standby)} == {("1", 0)}


def test_standbys_that_find_no_process_are_left_out() -> None:
    targets = assign_sticky(members("p/1", "p/2"), {"0": subtopology(2)}, 2)
    assert len(actives(targets)) == 2
    assert not any(target.standby for target in targets.values())


def test_without_members_or_tasks_nothing_is_assigned() -> None:
    assert assign_sticky({}, {"0": subtopology(2)}, 1) == {}
    assert assign_sticky(members("p/1"), {}, 1) == {"p/1": TaskSets()}


@pytest.mark.parametrize("seed", range(40))
def test_members_come_and_go(seed: int) -> None:
    random = Random(seed)
    subtopologies = {str(number): subtopology(random.randint(1, 9)) for number in range(random.randint(1, 3))}
    total = sum(row.task_count for row in subtopologies.values())
    replicas = random.randint(0, 2)
    names = [f"p{random.randint(0, 4)}/{number}" for number in range(10)]
    targets: dict[str, TaskSets] = {}
    for _ in range(6):
        present = random.sample(names, random.randint(1, 10))
        targets = assign_sticky(members(*present, targets=targets), subtopologies, replicas)
        assert targets.keys() == set(present)
        assert len(actives(targets)) == total
        assert max(Counter(copies(targets)).values()) == 1, "a process has a task twice"
        processes = len({name.split("/")[0] for name in present})
        per_task = Counter(task for task, _ in copies(targets))
        assert set(per_task.values()) == {1 + min(replicas, processes - 1)}
