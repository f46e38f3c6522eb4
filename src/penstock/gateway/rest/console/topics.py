"""`/api/v1/topics`: paged and searchable topics, and one topic with its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from starlette.responses import Response

from penstock.client.operations.offsets import EARLIEST, LATEST
from penstock.client.view import PartitionView, sizes_of
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.rest.console.cluster_snapshot import ClusterSnapshot, is_internal
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import TOPIC
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Routes, json_object
from penstock.gateway.web.parameters import flag, number, query
from penstock.gateway.web.problem import Problem
from penstock.model.ids import TopicPartition
from penstock.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)

TAG = "Topics (v1)"
PAGE_SIZE_MAX = 500
OFFSETS_TIMEOUT_S = 4.0
SORTS = ["name", "-name", "partitions", "-partitions", "short", "-short"]
PAGING = (
    query("search", "Words that the name contains, in any order and case.", default="", maxLength=249),
    number("page", "The page number, from 1.", 1, maximum=1_000_000, default=1),
    number("page_size", "How many entries per page.", 1, maximum=PAGE_SIZE_MAX, default=50),
)


routes: Routes[RestServices] = Routes(TAG, "/api/v1/topics", (TOPIC,))


@routes.on(
    "GET",
    "List topics, a page at a time.",
    *PAGING,
    query("sort", "What to sort by; a leading hyphen reverses the order.", enum=SORTS, default="name"),
    flag("internal", "Include internal topics."),
    flag("records", "Count the records of the topics on the page, as the difference of their offsets."),
    answers={200: json_object(["topics", "total", "page", "pages"])},
)
async def listing(services: RestServices, call: Call) -> Response:
    snapshot = await services.snapshots.latest()
    names = [name for name in matching(snapshot.topics, call["search"]) if call["internal"] or not is_internal(name)]
    chosen, shown = page_of(_sorted(names, call["sort"], snapshot), call)
    counted = await counts(services.groups, snapshot, chosen) if call["records"] else {}
    shown["topics"] = [{**show(name, snapshot.topics[name]), **counted.get(name, {})} for name in chosen]
    return json_response({**shown, "taken_ms": snapshot.taken_ms})


@routes.on(
    "GET /{topic}",
    "Show a topic: partitions with leader, replicas, offsets and size.",
    answers={200: json_object(["name", "partition_list"])},
)
async def one(services: RestServices, call: Call) -> Response:
    name = call["topic"]
    snapshot = await services.snapshots.latest()
    partitions = snapshot.topics.get(name)
    if partitions is None:
        # It may have been created a moment ago.
        services.snapshots.expire()
        snapshot = await services.snapshots.latest()
        partitions = snapshot.topics.get(name)
    if partitions is None:
        raise Problem(40401, f"no topic {name}", "GET /api/v1/topics lists the topics")
    keys = [TopicPartition(name, index) for index in range(len(partitions))]
    starts, ends, sizes = await asyncio.gather(
        _offsets(services.groups, keys, EARLIEST),
        _offsets(services.groups, keys, LATEST),
        _sizes(snapshot, services.wire, name, len(partitions)),
    )
    rows = [
        {
            "partition": index,
            "leader": partition.leader,
            "replicas": partition.replicas,
            "in_sync": partition.in_sync_replicas,
            "beginning": starts.get(TopicPartition(name, index)),
            "end": ends.get(TopicPartition(name, index)),
            "size_bytes": sizes.get((index, partition.leader)),
        }
        for index, partition in enumerate(partitions)
    ]
    return json_response({**show(name, partitions), "partition_list": rows, "taken_ms": snapshot.taken_ms})


def matching(names: Iterable[str], search: str) -> list[str]:
    """The names that contain all words, ignoring case."""
    words = search.lower().split()
    return [name for name in names if all(word in name.lower() for word in words)] if words else list(names)


def page_of(names: list[str], call: Call) -> tuple[list[str], dict[str, object]]:
    """The entries of the requested page, or of the last page, and the number of pages."""
    size = call["page_size"]
    pages = max(1, -(-len(names) // size))
    page = min(call["page"], pages)
    return names[(page - 1) * size : page * size], {"total": len(names), "page": page, "pages": pages}


def show(name: str, partitions: tuple[PartitionView, ...]) -> dict[str, object]:
    """A topic in a list."""
    return {
        "name": name,
        "internal": is_internal(name),
        "partitions": len(partitions),
        "replication_factor": max((len(partition.replicas) for partition in partitions), default=0),
        "under_replicated": sum(partition.is_under_replicated for partition in partitions),
        "offline": sum(partition.leader < 0 for partition in partitions),
    }


def _sorted(names: list[str], sort: str, snapshot: ClusterSnapshot) -> list[str]:
    by = sort.lstrip("-")
    if by == "partitions":
        names = sorted(names, key=lambda name: len(snapshot.topics[name]))
    elif by == "short":
        names = sorted(names, key=lambda name: sum(each.is_under_replicated for each in snapshot.topics[name]))
    return names[::-1] if sort.startswith("-") else names


async def counts(groups: Groups, snapshot: ClusterSnapshot, names: list[str]) -> dict[str, dict[str, int]]:
    """The number of records now and ever, by topic; topics whose leaders do not answer are left out."""
    keys = [
        TopicPartition(name, index)
        for name in names
        for index, partition in enumerate(snapshot.topics[name])
        if partition.leader >= 0
    ]
    starts, ends = await asyncio.gather(
        _offsets(groups, keys, EARLIEST),
        _offsets(groups, keys, LATEST),
    )
    found: dict[str, dict[str, int]] = {}
    for key, end in ends.items():
        if key in starts:
            row = found.setdefault(key.topic, {"records": 0, "written": 0})
            row["records"] += end - starts[key]
            row["written"] += end
    return found


async def _offsets(groups: Groups, keys: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    """Offsets; empty if a leader is too slow, because the page is still useful without them."""
    try:
        return await asyncio.wait_for(groups.offsets(keys, timestamp), OFFSETS_TIMEOUT_S)
    except TimeoutError:
        return {}


async def _sizes(
    snapshot: ClusterSnapshot, wire: BrokerWire, topic: str, partitions: int
) -> dict[tuple[int, int], int]:
    """Size in bytes by partition and broker, from the brokers that answer."""
    node_ids = {broker.address: broker.node_id for broker in snapshot.alive()}
    request = DescribeLogDirsRequest([DescribableLogDirTopic(topic, list(range(partitions)))])
    sizes: dict[tuple[int, int], int] = {}
    for address, response in (await wire.ask_each(node_ids, request)).items():
        sizes |= {(name.partition, node_ids[address]): size for name, size in sizes_of(response)}
    return sizes
