"""Requests about many things, row after row: other clients get their turns in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.api.configs.incremental_alter_configs import make_incremental_alter_configs
from penstock.api.context import Client, Handler, RequestContext
from penstock.api.groups.delete_groups import make_delete_groups
from penstock.api.groups.offset_fetch import make_offset_fetch
from penstock.api.observability.describe_lag import make_describe_lag
from penstock.api.pieces import GROUPS_MAX, ROWS_MAX, in_turns
from penstock.api.records.delete_records import make_delete_records
from penstock.core.metadata.image import Image
from penstock.core.metadata.topics import NewTopic, create_topics
from penstock.core.security.authorizer import Authorizer
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.describe_lag import DescribeLagRequest
from penstock.wire.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

ROWS = 2_000
NAMES = [f"n{number}" for number in range(ROWS)]
CONTEXT = RequestContext(9, None, Client(("client", 1), "", principal="User:eve"))


async def turns_during(work: Any) -> tuple[Any, int]:
    """The result, and how many turns the event loop had in the meantime."""
    working = asyncio.ensure_future(work)
    turns = 0
    while not working.done():
        await asyncio.sleep(0)
        turns += 1
    return working.result(), turns


async def nothing(_: object) -> None:
    """Settle no deletions."""


CASES: list[tuple[Callable[[Any], Handler], Any, Callable[[Any], Any], int]] = [
    (make_delete_groups, DeleteGroupsRequest(NAMES), lambda answer: answer.results, GROUPS_MAX),
    (make_describe_lag, DescribeLagRequest(NAMES), lambda answer: answer.groups, GROUPS_MAX),
    (
        make_offset_fetch,
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name) for name in NAMES]),
        lambda answer: answer.groups,
        GROUPS_MAX,
    ),
    (
        make_delete_records,
        DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition()]) for name in NAMES]),
        lambda answer: answer.topics,
        ROWS_MAX,
    ),
    (
        make_delete_records,
        DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(number) for number in range(ROWS)])]),
        lambda answer: answer.topics[0].partitions,
        ROWS_MAX,
    ),
    (
        make_incremental_alter_configs,
        IncrementalAlterConfigsRequest([AlterConfigsResource(2, name) for name in NAMES]),
        lambda answer: answer.responses,
        ROWS_MAX,
    ),
]


@pytest.mark.parametrize(("make", "request_", "rows", "rows_max"), CASES)
def test_a_long_request_is_answered_in_turns(
    make: Callable[[Any], Handler], request_: Any, rows: Callable[[Any], Any], rows_max: int
) -> None:
    async def story() -> None:
        services = SimpleNamespace(access=AccessControl(Authorizer()), groups=None, settle_deletions=nothing)
        answer, turns = await turns_during(make(services)(request_, CONTEXT))
        assert len(rows(answer)) == ROWS
        assert turns >= ROWS // rows_max

    asyncio.run(story())


def test_rows_come_in_order_and_few_take_no_turn() -> None:
    async def collect(count: int) -> list[int]:
        return [number async for number in in_turns(range(count), 10)]

    async def story() -> None:
        found, turns = await turns_during(collect(95))
        assert found == list(range(95))
        assert turns >= 9
        found, turns = await turns_during(collect(9))
        assert found == list(range(9))
        assert turns == 1

    asyncio.run(story())


def test_names_that_are_all_given_twice_are_compared_once_each() -> None:
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    wanted: Any = [NewTopic(Name(name), 1, 1, {}, {}) for name in (*NAMES, *NAMES)]
    unused: Any = None
    outcomes = create_topics(Image(), wanted, unused, unused, unused, unused, unused).response
    assert len(outcomes) == ROWS
    assert compared < 20 * ROWS
