"""How a member gets from its current to its target tasks, without two members ever running one active task.

The states are those of a consumer group's member (consumer/reconcile.py): it first revokes what the target no longer
gives it, then enters the target's epoch, then gets what is free. Besides, a process never has a task twice, in whatever
roles: its copy of the state is one directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from penstock.core.group.assignors.change import compare
from penstock.core.group.streams.members import MemberState, StreamsMember
from penstock.core.group.streams.tasks import NO_TASK_SETS, Task, TaskSets, each_of
from penstock.model.errors import ApiError, ErrorCode


class Holders(NamedTuple):
    """Who holds which task, until it is revoked: the process of the active one, and those with copies."""

    active: Mapping[Task, str]
    copies: frozenset[tuple[Task, str]]


def holders_of(members: Iterable[StreamsMember]) -> Holders:
    """What members have, and have yet to revoke."""
    active: dict[Task, str] = {}
    copies: list[tuple[Task, str]] = []
    for member in members:
        for tasks in (member.assigned, member.pending_revocation):
            active.update(dict.fromkeys(each_of(tasks.active), member.process_id))
            copies += [(task, member.process_id) for held in (tasks.standby, tasks.warmup) for task in each_of(held)]
    return Holders(active, frozenset(copies))


def reconcile(
    member: StreamsMember, target_epoch: int, target: TaskSets, owned: TaskSets | None, holders: Holders
) -> StreamsMember:
    """Take the member one step further; returns the same object if it has to wait.

    `owned` is what the member reports to own, None if it did not report. Raises FENCED_MEMBER_EPOCH for a member in an
    unknown state, until it reports to own nothing.
    """
    epoch = member.member_epoch
    if member.state is MemberState.STABLE:
        if epoch == target_epoch:
            return member
    elif member.state is MemberState.UNREVOKED_TASKS:
        if owned is None or owned.has_any_of(member.pending_revocation):
            return member
        epoch += 1
    elif member.state is MemberState.UNKNOWN:
        if owned is None or not owned.is_empty:
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            )
        epoch = target_epoch
    return _next(member, epoch, target_epoch, target, owned, holders)


def _next(
    member: StreamsMember,
    epoch: int,
    target_epoch: int,
    target: TaskSets,
    owned: TaskSets | None,
    holders: Holders,
) -> StreamsMember:
    process_id = member.process_id

    def is_held(subtopology: str, number: int) -> bool:
        task = (subtopology, number)
        return task in holders.active or (task, process_id) in holders.copies

    def is_here(subtopology: str, number: int) -> bool:
        task = (subtopology, number)
        return holders.active.get(task) == process_id or (task, process_id) in holders.copies

    active = compare(member.assigned.active, target.active, is_held)
    standby = compare(member.assigned.standby, target.standby, is_here)
    warmup = compare(member.assigned.warmup, target.warmup, is_here)
    lost = TaskSets(active.lost, standby.lost, warmup.lost)
    if not lost.is_empty and (owned is None or owned.has_any_of(lost)):
        # It stays in its epoch, so that its commits are accepted until it has revoked them.
        kept = TaskSets(active.kept, standby.kept, warmup.kept)
        return _advance(member, MemberState.UNREVOKED_TASKS, epoch, kept, lost, target_epoch)
    must_wait = active.must_wait or standby.must_wait or warmup.must_wait
    state = MemberState.UNRELEASED_TASKS if must_wait else MemberState.STABLE
    tasks = TaskSets(active.kept_and_gained, standby.kept_and_gained, warmup.kept_and_gained)
    return _advance(member, state, target_epoch, tasks, NO_TASK_SETS, target_epoch)


def _advance(
    member: StreamsMember, state: MemberState, epoch: int, assigned: TaskSets, revoked: TaskSets, target_epoch: int
) -> StreamsMember:
    assert not assigned.has_any_of(revoked), "what is revoked is not assigned any more"
    assert revoked.is_empty == (state is not MemberState.UNREVOKED_TASKS), "only revoking takes a step of its own"
    held = [*each_of(assigned.active), *each_of(revoked.active)]
    assert len(set(held)) == len(held), "a task is held once"
    return replace(
        member,
        state=state,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=revoked,
        # A task that was there before keeps the epoch in which it was assigned.
        active_epochs={task: member.active_epochs.get(task, target_epoch) for task in held},
    )
