"""`/api/v1/reassignments` and `/api/v1/transactions`: reassignments and transactions in progress."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.client.address import Address
from penstock.gateway.kafka.broker_requests import BrokerWire, check
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import INT32_MAX, PARTITION_SHAPE, TOPIC_SHAPE
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Body, Call, Routes, json_object
from penstock.gateway.web.parameters import query
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from penstock.wire.messages.list_transactions import ListTransactionsRequest

TAG = "Cluster (v1)"
ALTER_TIMEOUT_MS = 15_000
DESCRIBED_MAX = 200
MOVES_MAX = 10_000
BROKER_SHAPE = {"type": "integer", "minimum": 0, "maximum": INT32_MAX}
MOVE_BODY = json_object(
    ["moves"],
    moves={
        "type": "array",
        "minItems": 1,
        "maxItems": MOVES_MAX,
        "items": json_object(
            ["topic", "partition", "replicas"],
            topic=TOPIC_SHAPE,
            partition=PARTITION_SHAPE,
            replicas={"type": ["array", "null"], "items": BROKER_SHAPE, "minItems": 1, "maxItems": 100},
        ),
    },
)
MOVE_EXAMPLE = {"moves": [{"topic": "orders", "partition": 0, "replicas": [2, 3, 1]}]}


routes: Routes[RestServices] = Routes(TAG, "/api/v1/reassignments")


@routes.on("GET", "List ongoing partition reassignments.", answers={200: json_object(["reassignments"])})
async def listing(services: RestServices, _: Call) -> Response:
    response = await services.wire.ask(ListPartitionReassignmentsRequest(topics=None))
    check(response.error_code, response.error_message, "cannot list the reassignments")
    rows = [
        {
            "topic": topic.name,
            "partition": each.partition_index,
            "replicas": list(each.replicas),
            "adding": list(each.adding_replicas),
            "removing": list(each.removing_replicas),
        }
        for topic in response.topics
        for each in topic.partitions
    ]
    return json_response({"reassignments": sorted(rows, key=lambda row: (row["topic"], row["partition"]))})


@routes.on(
    "POST",
    "Reassign replicas to other brokers; null replicas cancel an ongoing reassignment.",
    body=Body(MOVE_BODY, example=MOVE_EXAMPLE),
    answers={202: json_object(["accepted"])},
)
async def start(services: RestServices, call: Call) -> Response:
    topics: dict[str, list[ReassignablePartition]] = {}
    for move in call.body["moves"]:
        topics.setdefault(move["topic"], []).append(ReassignablePartition(move["partition"], move["replicas"]))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=ALTER_TIMEOUT_MS,
        topics=[ReassignableTopic(name, partitions) for name, partitions in topics.items()],
    )
    response = await services.wire.ask(request, timeout_ms=ALTER_TIMEOUT_MS + 1000)
    check(response.error_code, response.error_message, "the replicas cannot be moved")
    for topic in response.responses:
        for each in topic.partitions:
            check(each.error_code, each.error_message, f"{topic.name} {each.partition_index} cannot be moved")
    return json_response({"accepted": len(call.body["moves"])}, 202)


transaction_routes: Routes[RestServices] = Routes(TAG)


@transaction_routes.on(
    "GET /api/v1/transactions",
    "List transactional ids with the state of their transactions.",
    query("search", "Only ids that contain this text.", default="", maxLength=249),
    answers={200: json_object(["transactions"])},
)
async def transactions(services: RestServices, call: Call) -> Response:
    snapshot = await services.snapshots.latest()
    node_ids = {broker.address: broker.node_id for broker in snapshot.alive()}
    answers = await services.wire.ask_each(node_ids, ListTransactionsRequest())
    rows: list[dict[str, Any]] = []
    silent = [number for address, number in node_ids.items() if address not in answers]
    for address, listed in answers.items():
        if listed.error_code:
            silent.append(node_ids[address])
            continue
        found = [each for each in listed.transaction_states if call["search"] in each.transactional_id]
        details = await _details(services.wire, address, [each.transactional_id for each in found[:DESCRIBED_MAX]])
        rows += [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "state": each.transaction_state,
                "coordinator": node_ids[address],
                **details.get(each.transactional_id, {}),
            }
            for each in found
        ]
    rows.sort(key=lambda row: (row["state"] != "Ongoing", row["transactional_id"]))
    return json_response({"transactions": rows, "silent_brokers": sorted(silent)})


async def _details(wire: BrokerWire, address: Address, ids: list[str]) -> dict[str, dict[str, object]]:
    if not ids:
        return {}
    answers = await wire.ask_each([address], DescribeTransactionsRequest(ids))
    response: DescribeTransactionsResponse = answers.get(address, DescribeTransactionsResponse())
    return {
        each.transactional_id: {
            "producer_epoch": each.producer_epoch,
            "timeout_ms": each.transaction_timeout_ms,
            "started_ms": each.transaction_start_time_ms if each.transaction_start_time_ms > 0 else None,
            "partitions": sum(len(topic.partitions) for topic in each.topics),
            "topics": [topic.topic for topic in each.topics],
        }
        for each in response.transaction_states
        if not each.error_code
    }
