"""The REST port's HTTP application: its resources, its OpenAPI document, and the HTML documentation page."""

from __future__ import annotations

from starlette.responses import HTMLResponse, RedirectResponse, Response

from penstock.gateway.console.static import console_pages
from penstock.gateway.kafka.admin import Admin
from penstock.gateway.rest.console.operations import console_operations
from penstock.gateway.rest.docs_page import docs_headers, docs_page
from penstock.gateway.rest.native.messages import publish_operations, subscribe_operations
from penstock.gateway.rest.native.records import plain_message_operations
from penstock.gateway.rest.native.tail import tail_operations, tail_sockets
from penstock.gateway.rest.native.topics import simple_topic_operations
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.v2.consumers import v2_consumer_operations
from penstock.gateway.rest.v2.media import answer
from penstock.gateway.rest.v2.produce import v2_produce_operations
from penstock.gateway.rest.v2.topics import v2_topic_operations
from penstock.gateway.rest.v3.acls import v3_acl_operations
from penstock.gateway.rest.v3.cluster_configs import v3_cluster_config_operations
from penstock.gateway.rest.v3.clusters import v3_cluster_operations
from penstock.gateway.rest.v3.configs import v3_config_operations
from penstock.gateway.rest.v3.errors import with_v3_codes
from penstock.gateway.rest.v3.groups import v3_group_operations
from penstock.gateway.rest.v3.reassignments import v3_reassignment_operations
from penstock.gateway.rest.v3.records import v3_record_operations
from penstock.gateway.rest.v3.schemas import ProduceSchemas
from penstock.gateway.rest.v3.shapes import V3
from penstock.gateway.rest.v3.topics import v3_partition_operations, v3_topic_operations
from penstock.gateway.roles import CONSOLE, EGRESS, INGRESS, METADATA_ROLES, serving
from penstock.gateway.web.application import Application, json_response
from penstock.gateway.web.openapi import document
from penstock.gateway.web.operations import Call, Operation, Routes
from penstock.model.version import __version__

DESCRIPTION = (
    "Publish and receive messages, manage topics and groups. Three families of calls: short ones for single "
    "messages, Confluent's REST Proxy v2, and v3."
)
V2_PREFIX = "application/vnd.kafka"
FRONT = {"name": "penstock", "version": __version__, "console": "/console/", "docs": "/docs", "api": "/openapi.json"}


def rest_operations(services: RestServices) -> list[Operation]:
    """All operations of the REST port that a caller has."""
    roles = services.settings.roles
    plain = plain_message_operations(
        services.admin, services.publisher, services.readers, services.groups, services.keys
    )
    publishing = [operation for operation in plain if operation.path.endswith("/topics/{topic}/messages")]
    return [
        *serving(CONSOLE, simple_topic_operations(services.admin), roles),
        *serving(INGRESS, publish_operations(services.publisher, services.keys, services.bodies), roles),
        *serving(EGRESS, subscribe_operations(services.admin, services.share_members, services.readers), roles),
        *serving(EGRESS, tail_operations(services.admin, services.tails), roles),
        *serving(INGRESS, publishing, roles),
        *serving(EGRESS, [operation for operation in plain if operation not in publishing], roles),
        *_proxy_operations(services),
        *serving(CONSOLE, console_operations(services), roles),
    ]


def _proxy_operations(services: RestServices) -> list[Operation]:
    """Confluent's REST Proxy."""
    admin, publisher, readers = services.admin, services.publisher, services.readers
    codec, v3 = services.codec, V3(services.cluster_id)
    managing = [
        *v3_cluster_operations(admin, v3),
        *v3_topic_operations(admin, v3),
        *v3_partition_operations(admin, readers, v3),
        *v3_config_operations(admin, v3),
        *v3_cluster_config_operations(admin, v3),
        *v3_acl_operations(admin, v3),
        *v3_reassignment_operations(admin, services.wire, v3),
        *v3_group_operations(services.groups, v3),
    ]
    roles, budgets = services.settings.roles, services.settings.budgets
    topics = v2_topic_operations(admin, readers, codec)
    reading = [operation for operation in topics if operation.path.endswith("/records")]
    return [
        *serving(METADATA_ROLES, [operation for operation in topics if operation not in reading], roles),
        *serving(EGRESS, reading, roles),
        *serving(INGRESS, v2_produce_operations(publisher, codec, budgets.produce_records_max, services.bodies), roles),
        *serving(EGRESS, v2_consumer_operations(services.instances, codec, services.settings), roles),
        *serving(CONSOLE, map(with_v3_codes, managing), roles),
        *serving(
            INGRESS,
            v3_record_operations(
                publisher, codec, ProduceSchemas(services.registry, codec), services.keys, v3, services.bodies
            ),
            roles,
        ),
    ]


def rest_application(services: RestServices) -> Application:
    """The application of one caller on the REST port."""
    return Application(
        rest_operations(services),
        limits=services.settings.limits,
        sockets=tail_sockets(services.admin, services.tails) if EGRESS in services.settings.roles else {},
        invalid_status=_invalid_status,
        read_json=services.bodies.read,
        load=services.load,
    )


def public_application(services: RestServices, sign_in: list[Operation]) -> Application:
    """The public resources of the REST port, which need no sign-in; `services` are the gateway's own."""
    health = _health_operations(services.admin)
    described = document(
        [*rest_operations(services), *health], title="Penstock REST", version=__version__, description=DESCRIPTION
    )
    page = docs_page(described)

    itself = Routes("Health")

    @itself.on("GET /", "Redirect browsers to the console; list the entry points for other clients.")
    async def front(call: Call) -> Response:
        accepted = call.request.headers.get("accept", "")
        if "text/html" in accepted:
            return RedirectResponse("console/")
        # Clients of the REST Proxy check that it is up with this request, and expect an empty object.
        return answer({}) if V2_PREFIX in accepted else json_response(FRONT)

    @itself.on("GET /openapi.json", "Get the OpenAPI document of this API.")
    async def openapi(_: Call) -> Response:
        return json_response(described)

    @itself.on("GET /docs", "Show this API's documentation page.", answer_type="text/html")
    async def docs(_: Call) -> Response:
        return HTMLResponse(page, headers=docs_headers())

    console = serving(CONSOLE, [*sign_in, *console_pages()], services.settings.roles)
    return Application(
        [*health, *itself, *console],
        limits=services.settings.limits,
        read_json=services.bodies.read,
        load=services.load,
    )


def _health_operations(admin: Admin) -> list[Operation]:
    routes = Routes("Health", "/status")

    @routes.on("GET /ready", "Check that the brokers can be reached.", always_served=True)
    async def ready(_: Call) -> Response:
        await admin.names()
        return json_response({"status": "ready"})

    @routes.on("GET /alive", "Answer.", always_served=True)
    async def alive(_: Call) -> Response:
        return json_response({"status": "alive"})

    return routes


def _invalid_status(path: str) -> int:
    """The status for invalid bodies: 422 in the REST Proxy's v2, otherwise 400."""
    words = path.strip("/").split("/")
    v2_produce = words[0] == "topics" and (len(words) == 2 or (len(words) == 4 and words[2] == "partitions"))
    return 422 if words[0] == "consumers" or v2_produce else 400
