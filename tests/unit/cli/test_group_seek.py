"""Plans of moves, made from what a cluster answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.cli.failures import CommandFailure
from penstock.cli.group.scope import Target, parse_scopes, parse_target
from penstock.cli.group.seek import plan_import, plan_seek
from penstock.cli.wire_client import WireClient
from penstock.client.operations.groups import CommittedOffset
from unit.cli.scripted_groups import scripted_cluster


@pytest.fixture
def client() -> Iterator[WireClient]:
    """One topic with two partitions that hold the offsets 5 to 20; a group that has also read a topic that is gone."""
    with scripted_cluster() as (cluster, client):
        cluster.committed = {"gone": [(0, 3, -1, "")], "orders": [(0, 10, 4, "note")]}
        # At a time, the offsets of the partitions are 8 and 9.
        cluster.offsets[77_000] = 8
        yield client


def plan(client: WireClient, word: str, *scopes: str) -> list[tuple[int, int | None, int, bool]]:
    target: Target = parse_target(word, 0)
    moves = plan_seek(client, "g", target, parse_scopes(scopes))
    assert {(move.topic, move.start_offset, move.end_offset) for move in moves} == {("orders", 5, 20)}
    return [(move.partition, move.old_offset, move.place.offset, move.clamped) for move in moves]


def test_what_was_committed_is_moved_where_its_topic_is_still_there(client: WireClient) -> None:
    assert plan(client, "latest") == [(0, 10, 20, False)]
    assert plan(client, "+3") == [(0, 10, 13, False)]


def test_scopes_take_in_what_was_never_committed(client: WireClient) -> None:
    assert plan(client, "@77", "orders") == [(0, 10, 8, False), (1, None, 9, False)]
    assert plan(client, "12", "orders:1") == [(1, None, 12, False)]


def test_an_offset_outside_of_a_partition_is_marked(client: WireClient) -> None:
    assert plan(client, "3") == [(0, 10, 5, True)]
    assert plan(client, "-6") == [(0, 10, 5, True)]
    assert plan(client, "-5") == [(0, 10, 5, False)]


def test_nothing_to_count_from(client: WireClient) -> None:
    with pytest.raises(CommandFailure, match="cannot shift group g in orders-1"):
        plan(client, "+1", "orders")


def test_an_import_is_taken_as_it_is(client: WireClient) -> None:
    [move] = plan_import(client, "g", {("orders", 1): {"offset": 99, "metadata": "m"}})
    assert move.place == CommittedOffset(99, None, "m")
    assert (move.old_offset, move.end_offset) == (None, 20)
    with pytest.raises(CommandFailure, match="no partition 2 of orders"):
        plan_import(client, "g", {("orders", 2): {"offset": 1}})
