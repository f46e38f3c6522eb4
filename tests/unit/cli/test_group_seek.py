"""Plans of moves, made from what an administrator finds; offsets that cannot be forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import pytest

from penstock.cli.admin import Partition, Topic
from penstock.cli.failures import CommandFailure
from penstock.cli.group.admin import CommittedOffset, Group, GroupAdmin
from penstock.cli.group.scope import Target, parse_scopes, parse_target
from penstock.cli.group.seek import forget_offsets, plan_import, plan_seek
from penstock.cli.options import Connection
from penstock.client.view import BrokerView


class FakeAdmin:
    """One topic with two partitions that hold the offsets 5 to 20; a group that has also read a topic that is gone."""

    def topics(self) -> list[Topic]:
        return [self.describe_topic("orders")]

    def describe_topic(self, name: str) -> Topic:
        return Topic(name, tuple(Partition(number, 1, (1,), (1,)) for number in (0, 1)), False)

    def committed(self, group_ids: Sequence[str]) -> dict[str, dict[tuple[str, int], CommittedOffset]]:
        places = {("gone", 0): CommittedOffset(3), ("orders", 0): CommittedOffset(10, 4, "note")}
        return dict.fromkeys(group_ids, places)

    def earliest_offsets(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        assert name == "orders"
        return dict.fromkeys(partitions, 5)

    def latest_offsets(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        assert name == "orders"
        return dict.fromkeys(partitions, 20)

    def offsets_at(self, name: str, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int]:
        assert (name, timestamp_ms) == ("orders", 77_000)
        return {number: 8 + number for number in partitions}


ADMIN = cast(GroupAdmin, FakeAdmin())


def plan(word: str, *scopes: str) -> list[tuple[int, int | None, int, bool]]:
    target: Target = parse_target(word, 0)
    moves = plan_seek(ADMIN, "g", target, parse_scopes(scopes))
    assert {(move.topic, move.start_offset, move.end_offset) for move in moves} == {("orders", 5, 20)}
    return [(move.partition, move.old_offset, move.place.offset, move.clamped) for move in moves]


def test_what_was_committed_is_moved_where_its_topic_is_still_there() -> None:
    assert plan("latest") == [(0, 10, 20, False)]
    assert plan("+3") == [(0, 10, 13, False)]


def test_scopes_take_in_what_was_never_committed() -> None:
    assert plan("@77", "orders") == [(0, 10, 8, False), (1, None, 9, False)]
    assert plan("12", "orders:1") == [(1, None, 12, False)]


def test_an_offset_outside_of_a_partition_is_marked() -> None:
    assert plan("3") == [(0, 10, 5, True)]
    assert plan("-6") == [(0, 10, 5, True)]
    assert plan("-5") == [(0, 10, 5, False)]


def test_nothing_to_count_from() -> None:
    with pytest.raises(CommandFailure, match="cannot shift group g in orders-1"):
        plan("+1", "orders")


def test_an_import_is_taken_as_it_is() -> None:
    [move] = plan_import(ADMIN, "g", {("orders", 1): {"offset": 99, "metadata": "m"}})
    assert move.place == CommittedOffset(99, None, "m")
    assert (move.old_offset, move.end_offset) == (None, 20)
    with pytest.raises(CommandFailure, match="no partition 2 of orders"):
        plan_import(ADMIN, "g", {("orders", 2): {"offset": 1}})


@pytest.mark.parametrize(
    ("connection", "why"),
    [
        (Connection("b:1", {"ssl.ca.location": "no.pem", "security.protocol": "SSL"}), "no.pem, which does not exist"),
        (Connection("b:1", {}), "127.0.0.1:1"),
    ],
)
def test_offsets_that_cannot_be_forgotten_are_a_sentence(connection: Connection, why: str) -> None:
    group = Group("g", "classic", "Empty", coordinator=BrokerView(1, "127.0.0.1", 1))
    with pytest.raises(CommandFailure, match="cannot delete offsets of group g") as caught:
        forget_offsets(connection, group, [("orders", 0)])
    assert why in caught.value.why
    assert caught.value.advice
