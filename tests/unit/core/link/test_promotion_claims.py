"""A promotion counts only what the present leaders claim for it, and lately."""

from __future__ import annotations

from penstock.core.link.promotion import CLAIM_MS, Claim, Claims

TOPIC = b"t" * 16
LEADERS = [(1, 4), (2, 7)]


def claims() -> Claims:
    made = Claims()
    made.note(TOPIC, 0, Claim(9, 1, 4, 100, 0))
    made.note(TOPIC, 1, Claim(9, 2, 7, 50, 10))
    return made


def test_all_partitions_must_be_claimed() -> None:
    assert claims().ends(TOPIC, 9, LEADERS, 20) == [100, 50]
    assert claims().ends(TOPIC, 9, [*LEADERS, (3, 0)], 20) is None


def test_a_claim_does_not_outlive_its_leadership() -> None:
    assert claims().ends(TOPIC, 9, [(1, 5), (2, 7)], 20) is None
    assert claims().ends(TOPIC, 9, [(3, 4), (2, 7)], 20) is None


def test_a_claim_of_a_canceled_promotion_does_not_count() -> None:
    assert claims().ends(TOPIC, 10, LEADERS, 20) is None
    made = claims()
    made.forget(TOPIC)
    assert made.ends(TOPIC, 9, LEADERS, 20) is None
    assert len(made) == 0


def test_a_claim_that_is_not_renewed_ages() -> None:
    made = claims()
    assert made.ends(TOPIC, 9, LEADERS, CLAIM_MS - 1) == [100, 50]
    assert made.ends(TOPIC, 9, LEADERS, CLAIM_MS) is None
    made.note(TOPIC, 0, Claim(9, 1, 4, 100, CLAIM_MS))
    assert made.ends(TOPIC, 9, LEADERS, CLAIM_MS) == [100, 50]


def test_a_leader_withdraws_its_own_claim_only() -> None:
    made = claims()
    made.note(TOPIC, 0, Claim(9, 3, 3, -1, 20))
    assert made.ends(TOPIC, 9, LEADERS, 20) == [100, 50]
    made.note(TOPIC, 0, Claim(9, 1, 4, -1, 20))
    assert made.ends(TOPIC, 9, LEADERS, 20) is None


def test_another_controller_knows_nothing() -> None:
    made = claims()
    made.clear()
    assert made.ends(TOPIC, 9, LEADERS, 20) is None
