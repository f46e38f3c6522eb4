"""Offsets of groups only move on, and not past what is mirrored."""

from __future__ import annotations

from penstock.core.link.offsets import offsets_to_commit
from penstock.core.link.selection import GroupSelection
from penstock.model.ids import TopicPartition

ONE, TWO, THREE = (TopicPartition("orders", number) for number in range(3))


def test_groups_move_on_and_never_back() -> None:
    theirs = dict.fromkeys((ONE, TWO, THREE), 10)
    assert offsets_to_commit(theirs, {ONE: 9, TWO: 10, THREE: 11}, dict.fromkeys(theirs, 50)) == {ONE: 10}


def test_no_group_is_past_the_end_of_a_mirror() -> None:
    assert offsets_to_commit({ONE: 100, TWO: 100}, {TWO: 70}, {ONE: 60, TWO: 70, THREE: 80}) == {ONE: 60}


def test_a_partition_whose_end_is_not_known_waits() -> None:
    assert offsets_to_commit({ONE: 10}, {}, {}) == {}
    assert offsets_to_commit({ONE: 0}, {}, {ONE: 0}) == {ONE: 0}


def test_groups_are_selected_by_patterns() -> None:
    selection = GroupSelection(["billing", "shop.*"])
    names = ("billing", "billing2", "shop.a", "shop")
    assert [name for name in names if selection.matches(name)] == ["billing", "shop.a"]
    assert not GroupSelection([]).matches("any")
