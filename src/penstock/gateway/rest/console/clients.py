"""`/api/v1/clients`: clients that push metrics to the brokers (KIP-714), and what they last pushed.

GET /api/v1/clients
GET /api/v1/clients/{client}
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.gateway.kafka.broker_requests import check
from penstock.gateway.rest.console.topics import matching
from penstock.gateway.rest.services import RestServices
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Routes, json_object
from penstock.gateway.web.parameters import Parameter, query
from penstock.gateway.web.problem import Problem
from penstock.model.ids import format_uuid, parse_uuid
from penstock.wire.messages.describe_clients import DescribeClientsRequest, DescribedClient

TAG = "Clients (v1)"
INSTANCE_SHAPE = {"type": "string", "pattern": "^[A-Za-z0-9_-]{22}$"}


routes: Routes[RestServices] = Routes(TAG, "/api/v1/clients")


async def find(
    services: RestServices, request: DescribeClientsRequest
) -> tuple[dict[bytes, tuple[int, DescribedClient]], list[int]]:
    """Each client as described by the broker that it contacted last, and the brokers that did not answer."""
    node_ids = {broker.address: broker.node_id for broker in (await services.snapshots.latest()).alive()}
    answers = await services.wire.ask_each(node_ids, request)
    found: dict[bytes, tuple[int, DescribedClient]] = {}
    for address, response in answers.items():
        check(response.error_code, response.error_message, "cannot list the clients")
        for client in response.clients:
            known = found.get(client.instance_id)
            if known is None or client.silence_ms < known[1].silence_ms:
                found[client.instance_id] = node_ids[address], client
    return found, sorted(number for address, number in node_ids.items() if address not in answers)


@routes.on(
    "GET",
    "List the clients that push metrics to the brokers.",
    query("search", "Only clients whose id, software or address has these words.", default="", maxLength=249),
    answers={200: json_object(["clients", "silent_brokers"])},
)
async def listing(services: RestServices, call: Call) -> Response:
    found, silent = await find(services, DescribeClientsRequest(None))
    rows = [shown(broker, client) for broker, client in found.values()]
    rows = [row for row in rows if matching([f"{row['client_id']} {row['software']} {row['host']}"], call["search"])]
    rows.sort(key=lambda row: (row["client_id"], row["instance_id"]))
    return json_response({"clients": rows, "silent_brokers": silent})


@routes.on(
    "GET /{client}",
    "Show a client with the metrics that it last pushed.",
    Parameter("client", "path", "The client's instance id.", INSTANCE_SHAPE, required=True),
    answers={200: json_object(["instance_id", "series"])},
)
async def one(services: RestServices, call: Call) -> Response:
    found, _ = await find(services, DescribeClientsRequest([parse_uuid(call["client"])], include_series=True))
    if not found:
        raise Problem(40401, f"no client {call['client']}", "GET /api/v1/clients lists the clients")
    ((broker, client),) = found.values()
    series = [
        {
            "name": one.name,
            "is_total": one.is_total,
            "value": one.value,
            "labels": {label.name: label.value for label in one.labels},
        }
        for one in sorted(client.series, key=lambda one: (one.name, one.labels))
    ]
    return json_response({**shown(broker, client), "series": series})


def shown(broker: int, client: DescribedClient) -> dict[str, Any]:
    """A client in a response."""
    return {
        "instance_id": format_uuid(client.instance_id),
        "client_id": client.client_id,
        "software": client.software_name,
        "version": client.software_version,
        "host": client.host,
        "broker": broker,
        "interval_ms": client.interval_ms,
        "silence_ms": client.silence_ms,
        "is_terminating": client.is_terminating,
        "series_count": client.series_count,
        "left_out": client.left_out,
        "requested_metrics": client.requested_metrics,
    }
