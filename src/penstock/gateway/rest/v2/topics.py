"""REST Proxy v2: brokers, topics, partitions, and records by offset."""

from __future__ import annotations

from starlette.responses import Response

from penstock.client.operations import configs
from penstock.client.operations.topics import Partition, describe_cluster
from penstock.gateway.kafka.reader import offset_number
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import PARTITION, TIMEOUT, TOPIC
from penstock.gateway.rest.v2.media import V2_TYPE, accepted_format, answer
from penstock.gateway.web.operations import Call, Routes
from penstock.gateway.web.parameters import number, query

TAG = "REST Proxy v2: topics"
READ_MAX = 10_000


routes: Routes[RestServices] = Routes(TAG, in_paths=(TOPIC, PARTITION), answer_type=V2_TYPE)


@routes.on("GET /brokers", "List the brokers.")
async def brokers(services: RestServices, _: Call) -> Response:
    cluster = await services.admin.brokers.run(describe_cluster)
    return answer({"brokers": [broker.node_id for broker in cluster.brokers]})


@routes.on("GET /topics", "List the topics.")
async def topics(services: RestServices, _: Call) -> Response:
    return answer(await services.admin.names())


@routes.on("GET /topics/{topic}", "Show a topic.")
async def topic(services: RestServices, call: Call) -> Response:
    described = await services.admin.describe(call["topic"])
    settings = await services.admin.brokers.run(configs.read_configs, configs.TOPIC, call["topic"])
    return answer(
        {
            "name": call["topic"],
            "configs": {entry.name: entry.value for entry in settings},
            "partitions": [show_partition(each) for each in described.partitions],
        }
    )


@routes.on("GET /topics/{topic}/partitions", "List partitions.")
async def partitions(services: RestServices, call: Call) -> Response:
    return answer([show_partition(each) for each in (await services.admin.describe(call["topic"])).partitions])


@routes.on("GET /topics/{topic}/partitions/{partition}", "Show a partition.")
async def partition(services: RestServices, call: Call) -> Response:
    return answer(show_partition(await services.admin.partition(call["topic"], call["partition"])))


@routes.on("GET /topics/{topic}/partitions/{partition}/offsets", "Show a partition's beginning and end offsets.")
async def offsets(services: RestServices, call: Call) -> Response:
    await services.admin.partition(call["topic"], call["partition"])
    marks = await services.readers.watermarks(call["topic"], call["partition"])
    return answer({"beginning_offset": marks.beginning, "end_offset": marks.end})


@routes.on(
    "GET /topics/{topic}/partitions/{partition}/records",
    "Read a partition's records from an offset on.",
    query("offset", "A number, earliest or latest.", default="earliest"),
    TIMEOUT,
    number("max_bytes", "How many bytes at most.", 1, default=1024 * 1024),
    answer_type="application/vnd.kafka.binary.v2+json",
)
async def records(services: RestServices, call: Call) -> Response:
    await services.admin.partition(call["topic"], call["partition"])
    form = accepted_format(call.request, "binary")
    found = await services.readers.read(
        call["topic"],
        call["partition"],
        offset_number(call["offset"]),
        READ_MAX,
        bytes_max=call["max_bytes"],
        timeout_ms=call["timeout"],
        caller=call.caller,
    )
    return Response(await services.codec.v2(found, form), media_type=f"application/vnd.kafka.{form}.v2+json")


def show_partition(partition: Partition) -> dict[str, object]:
    """A partition in v2's form."""
    return {
        "partition": partition.partition,
        "leader": partition.leader,
        "replicas": [
            {"broker": each, "leader": each == partition.leader, "in_sync": each in partition.in_sync_replicas}
            for each in partition.replicas
        ],
    }
