"""`/api/v1/topics/{topic}/hot-keys`: the keys with the most of a topic's latest records and bytes.

GET /api/v1/topics/{topic}/hot-keys?records=50000&keys=20
"""

from __future__ import annotations

from starlette.responses import Response

from penstock.core.hot_keys.merged import MergedKey, merge
from penstock.gateway.kafka.broker_requests import check
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import TOPIC
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Routes, json_object
from penstock.gateway.web.parameters import number
from penstock.wire.messages.describe_hot_keys import DescribeHotKeysRequest, DescribeHotKeysResponse, HotPartition

TAG = "Topics (v1)"
TIMEOUT_MS = 11_000


routes: Routes[RestServices] = Routes(TAG, in_paths=(TOPIC,))


@routes.on(
    "GET /api/v1/topics/{topic}/hot-keys",
    "Count the keys of a topic's latest records; a figure of a key is too low by at most the error.",
    number("records", "Records that each broker counts.", 1, maximum=1_000_000, default=50_000),
    number("keys", "Keys to show.", 1, maximum=100, default=20),
    answers={200: json_object(["records", "keys"])},
)
async def count(services: RestServices, call: Call) -> Response:
    name = call["topic"]
    node_ids = {broker.address: broker.node_id for broker in (await services.snapshots.latest()).alive()}
    request = DescribeHotKeysRequest(name, None, call["records"], call["keys"])
    answers = await services.wire.ask_each_apart(node_ids, request, timeout_ms=TIMEOUT_MS)
    rows: list[HotPartition] = []
    for answer in answers.values():
        response: DescribeHotKeysResponse = answer
        check(response.error_code, response.error_message, f"the keys of {name} cannot be counted")
        rows += response.partitions
    found = merge(rows)
    hottest = found.top(call["keys"], by_bytes=False)
    hottest += [one for one in found.top(call["keys"], by_bytes=True) if one not in hottest]
    return json_response(
        {
            "topic": name,
            "partitions": found.partitions,
            "records": found.records,
            "size_bytes": found.size_bytes,
            "keyless_records": found.keyless_records,
            "keyless_bytes": found.keyless_bytes,
            "records_error": found.records_error,
            "bytes_error": found.bytes_error,
            "keys": [shown(one) for one in hottest],
            "silent_brokers": sorted(node_id for address, node_id in node_ids.items() if address not in answers),
        }
    )


def shown(one: MergedKey) -> dict[str, object]:
    """A key in a response."""
    return {
        "key": one.text,
        "partitions": one.partitions,
        "records": one.records,
        "size_bytes": one.size_bytes,
    }
