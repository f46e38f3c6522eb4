"""A member's way to its target, step by step."""

from __future__ import annotations

import pytest

from penstock.core.group.assignors.contract import Partitions
from penstock.core.group.consumer.members import ConsumerMember, MemberState
from penstock.core.group.consumer.reconcile import reconcile
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid

T = b"t" * 16
U = b"u" * 16

STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_PARTITIONS
UNRELEASED = MemberState.UNRELEASED_PARTITIONS


def parts(*numbers: int) -> Partitions:
    return {T: frozenset(numbers)} if numbers else {}


def member(state: MemberState, epoch: int, assigned: Partitions, revoked: Partitions | None = None) -> ConsumerMember:
    return ConsumerMember("m", epoch, epoch - 1, state=state, assigned=assigned, pending_revocation=revoked or {})


def step(start: ConsumerMember, target: Partitions, owned: Partitions | None, *held: int) -> ConsumerMember:
    """Towards a target of epoch 5, while others hold some partitions."""

    def is_owned(topic_id: Uuid, partition: int) -> bool:
        return topic_id == T and partition in held

    return reconcile(start, 5, target, owned, is_owned)


def test_a_stable_member_in_the_target_s_epoch_stays_as_it_is() -> None:
    start = member(STABLE, 5, parts(1))
    assert step(start, parts(1), None) is start


def test_free_partitions_are_taken_at_once() -> None:
    assert step(member(STABLE, 4, parts(1)), parts(1, 2), None) == member(STABLE, 5, parts(1, 2))


def test_a_member_waits_in_the_new_epoch_for_partitions_that_others_hold() -> None:
    after = step(member(STABLE, 4, parts(1)), parts(1, 2, 3), None, 2)
    assert after == member(UNRELEASED, 5, parts(1, 3))
    again = step(after, parts(1, 2, 3), None, 2)
    assert (again.state, again.assigned, again.previous_member_epoch) == (UNRELEASED, parts(1, 3), 5)
    assert step(again, parts(1, 2, 3), None).state is STABLE


def test_a_member_gives_up_partitions_before_it_gets_others_or_leaves_its_epoch() -> None:
    after = step(member(STABLE, 3, parts(1, 2)), parts(1, 3), None)
    assert (after.state, after.member_epoch) == (UNREVOKED, 3)
    assert (after.assigned, after.pending_revocation) == (parts(1), parts(2))


@pytest.mark.parametrize("owned", [None, parts(1, 2), parts(2)])
def test_it_waits_as_long_as_the_member_owns_them_or_does_not_say(owned: Partitions | None) -> None:
    start = member(UNREVOKED, 3, parts(1), parts(2))
    assert step(start, parts(1, 3), owned) is start


def test_revoked_partitions_are_gone_and_the_member_continues_to_the_target() -> None:
    after = step(member(UNREVOKED, 3, parts(1), parts(2)), parts(1, 3), parts(1))
    assert (after.state, after.member_epoch, after.previous_member_epoch) == (STABLE, 5, 3)
    assert (after.assigned, after.pending_revocation) == (parts(1, 3), {})


def test_a_member_that_owns_nothing_has_nothing_to_give_up() -> None:
    after = step(member(STABLE, 3, parts(1, 2)), parts(2), {})
    assert (after.state, after.member_epoch, after.assigned) == (STABLE, 5, parts(2))


def test_more_may_have_to_be_revoked_than_first_requested() -> None:
    after = step(member(UNREVOKED, 3, parts(1), parts(2)), parts(4), parts(1))
    assert (after.state, after.member_epoch) == (UNREVOKED, 4)
    assert (after.assigned, after.pending_revocation) == ({}, parts(1))


def test_a_partition_that_comes_back_must_be_released_first() -> None:
    """It is still held by the member itself, for whom it was on its way out."""
    after = step(member(UNREVOKED, 3, parts(1), parts(2)), parts(1, 2), parts(1), 2)
    assert (after.state, after.member_epoch, after.assigned) == (UNRELEASED, 5, parts(1))


def test_an_unreleased_member_can_be_asked_to_give_up_more() -> None:
    after = step(member(UNRELEASED, 4, parts(1, 3)), parts(1), parts(1, 3))
    assert (after.state, after.member_epoch, after.pending_revocation) == (UNREVOKED, 4, parts(3))


def test_topics_are_distinguished() -> None:
    start = member(STABLE, 4, {T: frozenset({1}), U: frozenset({1})})
    after = step(start, {U: frozenset({1})}, {U: frozenset({1})})
    assert (after.state, after.assigned) == (STABLE, {U: frozenset({1})})


def test_a_member_in_an_unknown_state_must_start_over() -> None:
    start = member(MemberState(99), 3, parts(1))
    assert start.state is MemberState.UNKNOWN
    for owned in (None, parts(1)):
        with pytest.raises(ApiError) as refused:
            step(start, parts(1), owned)
        assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert step(start, parts(1, 2), {}) == ConsumerMember("m", 5, 3, state=STABLE, assigned=parts(1, 2))
