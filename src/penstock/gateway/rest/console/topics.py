"""`/api/v1/topics`: topics by page and search, and one topic with all that is known of its partitions."""

from __future__ import annotations

import asyncio
from typing import Any

from confluent_kafka.admin._listoffsets import OffsetSpec
from starlette.responses import Response

from penstock.client.view import PartitionView, sizes_of
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.kafka.wire import BrokerWire
from penstock.gateway.rest.console.picture import Picture, Pictures
from penstock.gateway.rest.shapes import TOPIC
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Operation
from penstock.gateway.web.parameters import flag, number, query
from penstock.gateway.web.problem import Problem
from penstock.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

TAG = "Topics (v1)"
PAGE_SIZE_MAX = 500
OFFSETS_TIMEOUT_S = 4.0
# Topics that clients and the cluster itself keep: names with two underscores in front, and the registry's.
INTERNAL_NAMES = {"_schemas"}
SORTS = ["name", "-name", "partitions", "-partitions", "short", "-short"]
PAGING = (
    query("search", "Words that the name holds, in any order, in any case.", default="", maxLength=249),
    number("page", "The page, counted from 1.", 1, maximum=1_000_000, default=1),
    number("page_size", "How many entries a page has.", 1, maximum=PAGE_SIZE_MAX, default=50),
)


def topic_operations(pictures: Pictures, groups: Groups, wire: BrokerWire) -> list[Operation]:
    """Looking at topics."""

    async def listing(call: Call) -> Response:
        picture = await pictures.latest()
        names = [name for name in matching(picture.topics, call["search"]) if call["internal"] or not is_internal(name)]
        chosen, shown = page_of(_sorted(names, call["sort"], picture), call)
        counted = await counts(groups, picture, chosen) if call["records"] else {}
        shown["topics"] = [{**show(name, picture.topics[name]), **counted.get(name, {})} for name in chosen]
        return json_response({**shown, "taken_ms": picture.taken_ms})

    async def one(call: Call) -> Response:
        name = call["topic"]
        picture = await pictures.latest()
        partitions = picture.topics.get(name)
        if partitions is None:
            # It may have been made a moment ago.
            pictures.expire()
            picture = await pictures.latest()
            partitions = picture.topics.get(name)
        if partitions is None:
            raise Problem(404, 40401, f"there is no topic {name}", "GET /api/v1/topics lists the topics")
        places = [(name, index) for index in range(len(partitions))]
        begins, ends, sizes = await asyncio.gather(
            _offsets(groups, places, OffsetSpec.earliest()),  # type: ignore[no-untyped-call]
            _offsets(groups, places, OffsetSpec.latest()),  # type: ignore[no-untyped-call]
            _sizes(picture, wire, name, len(partitions)),
        )
        rows = [
            {
                "partition": index,
                "leader": partition.leader,
                "replicas": partition.replicas,
                "in_sync": partition.in_sync_replicas,
                "beginning": begins.get((name, index)),
                "end": ends.get((name, index)),
                "size_bytes": sizes.get((index, partition.leader)),
            }
            for index, partition in enumerate(partitions)
        ]
        return json_response({**show(name, partitions), "partition_list": rows, "taken_ms": picture.taken_ms})

    return [
        Operation(
            "GET",
            "/api/v1/topics",
            listing,
            "List topics, a page at a time.",
            TAG,
            (
                *PAGING,
                query("sort", "What to sort by; a hyphen in front turns it round.", enum=SORTS, default="name"),
                flag("internal", "Show the topics that the cluster keeps for itself, too."),
                flag("records", "Count records, as the difference of offsets, of the topics on the page."),
            ),
            answers={200: {"type": "object", "required": ["topics", "total", "page", "pages"]}},
        ),
        Operation(
            "GET",
            "/api/v1/topics/{topic}",
            one,
            "Show a topic: partitions with leader, replicas, offsets and size.",
            TAG,
            (TOPIC,),
            answers={200: {"type": "object", "required": ["name", "partition_list"]}},
        ),
    ]


def is_internal(name: str) -> bool:
    """Whether a topic belongs to the cluster, not to people."""
    return name.startswith("__") or name in INTERNAL_NAMES


def matching(names: Any, search: str) -> list[str]:
    """The names that hold all words, whatever their case."""
    words = search.lower().split()
    return [name for name in names if all(word in name.lower() for word in words)] if words else list(names)


def page_of(names: list[str], call: Call) -> tuple[list[str], dict[str, Any]]:
    """The entries of the page that is asked for, or of the last one there is; and how many there are."""
    size = call["page_size"]
    pages = max(1, -(-len(names) // size))
    page = min(call["page"], pages)
    return names[(page - 1) * size : page * size], {"total": len(names), "page": page, "pages": pages}


def show(name: str, partitions: tuple[PartitionView, ...]) -> dict[str, Any]:
    """A topic in a list."""
    return {
        "name": name,
        "internal": is_internal(name),
        "partitions": len(partitions),
        "replication_factor": max((len(partition.replicas) for partition in partitions), default=0),
        "under_replicated": sum(partition.is_under_replicated for partition in partitions),
        "offline": sum(partition.leader < 0 for partition in partitions),
    }


def _sorted(names: list[str], sort: str, picture: Picture) -> list[str]:
    by = sort.lstrip("-")
    if by == "partitions":
        names = sorted(names, key=lambda name: len(picture.topics[name]))
    elif by == "short":
        names = sorted(names, key=lambda name: sum(each.is_under_replicated for each in picture.topics[name]))
    return names[::-1] if sort.startswith("-") else names


async def counts(groups: Groups, picture: Picture, names: list[str]) -> dict[str, dict[str, int]]:
    """Records that are there, and that ever were, by topic; without topics whose leaders do not answer."""
    places = [
        (name, index) for name in names for index, partition in enumerate(picture.topics[name]) if partition.leader >= 0
    ]
    begins, ends = await asyncio.gather(
        _offsets(groups, places, OffsetSpec.earliest()),  # type: ignore[no-untyped-call]
        _offsets(groups, places, OffsetSpec.latest()),  # type: ignore[no-untyped-call]
    )
    found: dict[str, dict[str, int]] = {}
    for place, end in ends.items():
        if place in begins:
            row = found.setdefault(place[0], {"records": 0, "written": 0})
            row["records"] += end - begins[place]
            row["written"] += end
    return found


async def _offsets(groups: Groups, places: list[tuple[str, int]], spec: OffsetSpec) -> dict[tuple[str, int], int]:
    """Offsets, or none when a leader keeps everybody waiting: the page says more without them than with nothing."""
    try:
        return await asyncio.wait_for(groups.offsets(places, spec), OFFSETS_TIMEOUT_S)
    except TimeoutError:
        return {}


async def _sizes(picture: Picture, wire: BrokerWire, topic: str, partitions: int) -> dict[tuple[int, int], int]:
    """Bytes by partition and broker, of the brokers that answer."""
    if not wire.is_usable:
        return {}
    places = {broker.address: broker.node_id for broker in picture.alive()}
    request = DescribeLogDirsRequest([DescribableLogDirTopic(topic, list(range(partitions)))])
    sizes: dict[tuple[int, int], int] = {}
    for address, answer in (await wire.ask_each(places, request)).items():
        response: DescribeLogDirsResponse = answer
        sizes |= {(name.partition, places[address]): size for name, size in sizes_of(response)}
    return sizes
