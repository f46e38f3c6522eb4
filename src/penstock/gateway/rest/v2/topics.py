"""REST Proxy v2: brokers, topics, partitions, and records by offset."""

from __future__ import annotations

import asyncio
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin._config import ConfigResource
from starlette.responses import Response

from penstock.gateway.kafka.admin import REQUEST_TIMEOUT_S, Admin, ask
from penstock.gateway.kafka.errors import problem_of
from penstock.gateway.kafka.reader import Readers, offset_number
from penstock.gateway.rest.shapes import PARTITION, TIMEOUT, TOPIC
from penstock.gateway.rest.v2.media import V2_TYPE, accepted_format, answer
from penstock.gateway.rest.values.schema_codec import SchemaCodec
from penstock.gateway.web.operations import Call, Operation, Routes
from penstock.gateway.web.parameters import number, query

TAG = "REST Proxy v2: topics"
READ_MAX = 10_000


def v2_topic_operations(admin: Admin, readers: Readers, codec: SchemaCodec) -> list[Operation]:
    """Operations that show topics and read records by offset."""
    routes = Routes(TAG, in_paths=(TOPIC, PARTITION), answer_type=V2_TYPE)

    @routes.on("GET /brokers", "List the brokers.")
    async def brokers(_: Call) -> Response:
        try:
            metadata = await asyncio.to_thread(admin.client.list_topics, "_schemas", REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise problem_of(error) from None
        return answer({"brokers": sorted(metadata.brokers)})

    @routes.on("GET /topics", "List the topics.")
    async def topics(_: Call) -> Response:
        return answer(await admin.names())

    @routes.on("GET /topics/{topic}", "Show a topic.")
    async def topic(call: Call) -> Response:
        resource = ConfigResource(ConfigResource.Type.TOPIC, call["topic"])
        described = await admin.describe(call["topic"])
        configs = await ask(admin.client.describe_configs, [resource])
        return answer(
            {
                "name": call["topic"],
                "configs": {name: entry.value for name, entry in configs.items()},
                "partitions": [show_partition(each) for each in described.partitions],
            }
        )

    @routes.on("GET /topics/{topic}/partitions", "List partitions.")
    async def partitions(call: Call) -> Response:
        return answer([show_partition(each) for each in (await admin.describe(call["topic"])).partitions])

    @routes.on("GET /topics/{topic}/partitions/{partition}", "Show a partition.")
    async def partition(call: Call) -> Response:
        return answer(show_partition(await admin.partition(call["topic"], call["partition"])))

    @routes.on("GET /topics/{topic}/partitions/{partition}/offsets", "Show a partition's beginning and end offsets.")
    async def offsets(call: Call) -> Response:
        await admin.partition(call["topic"], call["partition"])
        marks = await readers.watermarks(call["topic"], call["partition"])
        return answer({"beginning_offset": marks.beginning, "end_offset": marks.end})

    @routes.on(
        "GET /topics/{topic}/partitions/{partition}/records",
        "Read a partition's records from an offset on.",
        query("offset", "A number, earliest or latest.", default="earliest"),
        TIMEOUT,
        number("max_bytes", "How many bytes at most.", 1, default=1024 * 1024),
        answer_type="application/vnd.kafka.binary.v2+json",
    )
    async def records(call: Call) -> Response:
        await admin.partition(call["topic"], call["partition"])
        form = accepted_format(call.request, "binary")
        found = await readers.read(
            call["topic"],
            call["partition"],
            offset_number(call["offset"]),
            READ_MAX,
            bytes_max=call["max_bytes"],
            timeout_ms=call["timeout"],
            caller=call.caller,
        )
        return Response(await codec.v2(found, form), media_type=f"application/vnd.kafka.{form}.v2+json")

    return routes


def show_partition(partition: Any) -> dict[str, Any]:
    """A partition in v2's form."""
    leader = partition.leader.id if partition.leader is not None else -1
    in_sync = {node.id for node in partition.isr}
    return {
        "partition": partition.id,
        "leader": leader,
        "replicas": [
            {"broker": node.id, "leader": node.id == leader, "in_sync": node.id in in_sync}
            for node in partition.replicas
        ],
    }
