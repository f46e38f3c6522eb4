"""Requests about many things, row after row: other clients get their turns in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.api.access import check_all, split_by_right
from penstock.api.configs.incremental_alter_configs import incremental_alter_configs
from penstock.api.context import Client, Handler, RequestContext, settled
from penstock.api.groups.delete_groups import delete_groups
from penstock.api.groups.offset_fetch import offset_fetch
from penstock.api.observability.describe_lag import describe_lag
from penstock.api.pieces import DECIDED_MAX, GROUPS_MAX, ROWS_MAX, decide_in_pieces, in_turns
from penstock.api.records.delete_records import delete_records
from penstock.api.records.produce_append import ROWS_AT_ONCE_MAX
from penstock.api.topics.describe_topic_partitions import describe_topic_partitions
from penstock.core.metadata.image import Image
from penstock.core.metadata.topics import NewTopic, create_topics
from penstock.core.security.authorizer import Authorizer
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.security.access_control import OPEN, AccessControl
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.describe_lag import DescribeLagRequest
from penstock.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from penstock.wire.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from penstock.wire.messages.metadata_records import TopicRecord
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.record_handlers import produce_handler

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
    (delete_groups, DeleteGroupsRequest(NAMES), lambda answer: answer.results, GROUPS_MAX),
    (describe_lag, DescribeLagRequest(NAMES), lambda answer: answer.groups, GROUPS_MAX),
    (
        offset_fetch,
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name) for name in NAMES]),
        lambda answer: answer.groups,
        GROUPS_MAX,
    ),
    (
        delete_records,
        DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition()]) for name in NAMES]),
        lambda answer: answer.topics,
        ROWS_MAX,
    ),
    (
        delete_records,
        DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(number) for number in range(ROWS)])]),
        lambda answer: answer.topics[0].partitions,
        ROWS_MAX,
    ),
    (
        incremental_alter_configs,
        IncrementalAlterConfigsRequest([AlterConfigsResource(2, name) for name in NAMES]),
        lambda answer: answer.responses,
        ROWS_MAX,
    ),
]


@pytest.mark.parametrize(("serve", "request_", "rows", "rows_max"), CASES)
def test_a_long_request_is_answered_in_turns(
    serve: Callable[..., Any], request_: Any, rows: Callable[[Any], Any], rows_max: int
) -> None:
    async def story() -> None:
        services = SimpleNamespace(access=AccessControl(Authorizer()), groups=None, settle_deletions=nothing)
        answer, turns = await turns_during(serve(services, request_, CONTEXT))
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


def test_rows_are_decided_in_pieces_and_those_of_the_same_name_together() -> None:
    names = [f"n{number}" for number in range(2_500)]
    rows = ["twice", *names, "twice"]
    pieces: list[list[str]] = []

    async def decide(some: list[str]) -> list[str]:
        pieces.append(some)
        return [name.upper() for name in some]

    answers, turns = asyncio.run(turns_during(decide_in_pieces(rows, str, decide)))
    assert answers == [name.upper() for name in rows]
    assert turns >= len(pieces)
    assert pieces[0] == ["twice", "twice"]
    assert max(map(len, pieces)) == DECIDED_MAX <= 500
    pieces.clear()
    assert asyncio.run(decide_in_pieces(["a", "b"], str, decide)) == ["A", "B"]
    assert asyncio.run(decide_in_pieces([], str, decide)) == []
    assert pieces == [["a", "b"], []]


def test_rights_on_many_resources_are_checked_in_turns() -> None:
    access = AccessControl(Authorizer())

    async def story() -> None:
        (allowed, refused), turns = await turns_during(
            split_by_right(access, CONTEXT, Operation.READ, ResourceType.TOPIC, NAMES, str)
        )
        assert (allowed, refused) == ([], NAMES)
        assert turns >= ROWS // ROWS_MAX
        some = AccessControl(Authorizer(allow_if_no_entry=True))
        _, turns = await turns_during(check_all(some, CONTEXT, Operation.READ, ResourceType.TOPIC, NAMES))
        assert turns >= ROWS // ROWS_MAX
        with pytest.raises(ApiError):
            await check_all(access, CONTEXT, Operation.READ, ResourceType.TOPIC, NAMES)

    asyncio.run(story())


def test_topics_are_described_page_by_page_in_turns() -> None:
    async def story() -> None:
        image = Image()
        for name in NAMES:
            image.replay(TopicRecord(name, name.rjust(16).encode()))
        node = SimpleNamespace(max_request_partition_size_limit=10)
        services: Any = SimpleNamespace(image=image, access=OPEN, settings=SimpleNamespace(node=node))
        describe = partial(describe_topic_partitions, services)
        for request in (
            DescribeTopicPartitionsRequest(response_partition_limit=10),
            DescribeTopicPartitionsRequest([TopicRequest(name) for name in NAMES], 10),
        ):
            answer, turns = await turns_during(describe(request, CONTEXT))
            assert [topic.name for topic in answer.topics] == sorted(NAMES)
            assert turns >= 2 * ROWS // ROWS_MAX

    asyncio.run(story())


def test_a_produce_to_many_partitions_is_appended_in_turns() -> None:
    def no_partition(*_: object, **__: object) -> None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is none")

    async def story() -> None:
        partitions: Any = SimpleNamespace(is_behind=False, lookup=no_partition, image=Image())
        clock: Any = SimpleNamespace(now_ms=lambda: 0, monotonic_ms=lambda: 0)
        guard: Any = SimpleNamespace(watched=False)
        produce = produce_handler(clock, partitions, guard, guard)
        rows = [PartitionProduceData(number, b"") for number in range(5 * ROWS_AT_ONCE_MAX + 1)]
        topics = [TopicProduceData("a", partition_data=rows), TopicProduceData("b", partition_data=rows)]
        answer, turns = await turns_during(settled(produce(ProduceRequest(None, 1, 0, topics), CONTEXT)))
        assert turns >= 10
        assert [topic.name for topic in answer.responses] == ["a", "b"]
        for topic in answer.responses:
            assert [row.index for row in topic.partition_responses] == list(range(len(rows)))
        few = ProduceRequest(None, 1, 0, [TopicProduceData("a", partition_data=rows[:ROWS_AT_ONCE_MAX])])
        assert isinstance(produce(few, CONTEXT), ProduceResponse)

    asyncio.run(story())


def test_each_turn_of_the_loop_continues_one_large_request_however_many_there_are() -> None:
    async def story() -> None:
        done = Counter[int]()

        async def work(number: int) -> None:
            async for _ in in_turns(range(10), 1):
                done[number] += 1

        gone = asyncio.ensure_future(work(99))
        everything = asyncio.gather(*(work(number) for number in range(20)))
        # All of them start in the same turn.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gone.cancel()
        before = done.total()
        while not everything.done():
            await asyncio.sleep(0)
            assert done.total() <= before + 1
            before = done.total()
        assert [done[number] for number in range(20)] == [10] * 20

    asyncio.run(story())
