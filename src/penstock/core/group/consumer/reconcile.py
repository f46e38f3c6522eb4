"""How a member gets from its current to its target assignment, without two members ever owning one partition.

A member first revokes what the target no longer gives it, then enters the target's epoch, then gets what is free:

    STABLE ──target takes some──▶ UNREVOKED_PARTITIONS ──no longer reports them──┐
      │  ▲                                                                       ▼
      │  └──────────── nothing missing ◀──────────────────────── enters the target's epoch
      │                                                                          │
      └──target gives some that others hold──▶ UNRELEASED_PARTITIONS ◀───────────┘
                                                 (gets them as they are released)

Partitions that a member has yet to revoke are not released: no other member gets them before the member has reported,
in its list of owned partitions, that it no longer owns them, or has left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.core.group.assignors.change import compare
from penstock.core.group.assignors.contract import NO_PARTITIONS, Partitions
from penstock.core.group.consumer.members import ConsumerMember, MemberState
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid

IsOwned = Callable[[Uuid, int], bool]


def reconcile(
    member: ConsumerMember, target_epoch: int, target: Partitions, owned: Partitions | None, is_owned: IsOwned
) -> ConsumerMember:
    """Take the member one step further; returns the same object if it has to wait.

    `owned` is what the member reports to own, None if it did not report; `is_owned` returns whether any member holds a
    partition. Raises FENCED_MEMBER_EPOCH for a member in an unknown state, until it reports to own nothing.
    """
    if member.state is MemberState.STABLE:
        if member.member_epoch == target_epoch:
            return member
        return _next(member, member.member_epoch, target_epoch, target, owned, is_owned)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(owned, member.pending_revocation):
            return member
        return _next(member, member.member_epoch + 1, target_epoch, target, owned, is_owned)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _next(member, member.member_epoch, target_epoch, target, owned, is_owned)
    if owned is None or owned:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"Member {member.member_id} is in a state that this coordinator does not know. It must revoke all its"
            " partitions and rejoin.",
        )
    return _next(member, target_epoch, target_epoch, target, owned, is_owned)


def _next(
    member: ConsumerMember,
    member_epoch: int,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    is_owned: IsOwned,
) -> ConsumerMember:
    change = compare(member.assigned, target, is_owned)
    if change.lost and _still_owns(owned, change.lost):
        # It stays in its epoch, so that its commits are accepted until it has revoked them.
        return _advance(member, MemberState.UNREVOKED_PARTITIONS, member_epoch, change.kept, change.lost)
    state = MemberState.UNRELEASED_PARTITIONS if change.must_wait else MemberState.STABLE
    return _advance(member, state, target_epoch, change.kept_and_gained, NO_PARTITIONS)


def _advance(
    member: ConsumerMember, state: MemberState, epoch: int, assigned: Partitions, pending_revocation: Partitions
) -> ConsumerMember:
    assert all(not numbers & pending_revocation.get(topic_id, frozenset()) for topic_id, numbers in assigned.items())
    assert bool(pending_revocation) == (state is MemberState.UNREVOKED_PARTITIONS), (
        "only revoking takes a step of its own"
    )
    return replace(
        member,
        state=state,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )


def _still_owns(owned: Partitions | None, revoked: Partitions) -> bool:
    """Whether the member may still use any of these: it reports so, or it reports nothing."""
    if owned is None:
        return True
    return any(partitions & owned.get(topic_id, frozenset()) for topic_id, partitions in revoked.items())
