"""The REST port's HTTP application: its resources, its OpenAPI document, and the HTML documentation page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Never

from starlette.responses import HTMLResponse, RedirectResponse, Response

from penstock.gateway.console import static as pages
from penstock.gateway.kafka.admin import Admin
from penstock.gateway.rest.console.operations import console_operations
from penstock.gateway.rest.console.sign_in import ConsoleSignIn
from penstock.gateway.rest.console.sign_in import routes as sign_in_routes
from penstock.gateway.rest.docs_page import docs_headers, docs_page
from penstock.gateway.rest.native import messages, records, tail
from penstock.gateway.rest.native import topics as native_topics
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.v2 import consumers, produce
from penstock.gateway.rest.v2 import topics as v2_topics
from penstock.gateway.rest.v2.media import answer
from penstock.gateway.rest.v3 import acls, cluster_configs, clusters, configs, groups, reassignments, topics
from penstock.gateway.rest.v3 import records as v3_records
from penstock.gateway.rest.v3.errors import with_v3_codes
from penstock.gateway.roles import CONSOLE, EGRESS, INGRESS, METADATA_ROLES, serving
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.application import Application, BoundApplication, Load, json_response
from penstock.gateway.web.body_reader import BodyReader
from penstock.gateway.web.openapi import document
from penstock.gateway.web.operations import Call, Operation, Routes
from penstock.model.version import __version__

DESCRIPTION = (
    "Publish and receive messages, manage topics and groups. Three families of calls: short ones for single "
    "messages, Confluent's REST Proxy v2, and v3."
)
V2_PREFIX = "application/vnd.kafka"
FRONT = {"name": "penstock", "version": __version__, "console": "/console/", "docs": "/docs", "api": "/openapi.json"}


@dataclass(frozen=True, slots=True)
class PublicServices:
    """What the public resources use, none of which is a caller's."""

    admin: Admin
    sign_in: ConsoleSignIn
    document: Mapping[str, object]
    page: str


def rest_operations(settings: GatewaySettings) -> list[Operation[RestServices]]:
    """All operations of the REST port that a caller has."""
    roles = settings.roles
    publishing = [operation for operation in records.routes if operation.path.endswith("/topics/{topic}/messages")]
    return [
        *serving(CONSOLE, native_topics.routes, roles),
        *serving(INGRESS, messages.publish_routes, roles),
        *serving(EGRESS, messages.subscribe_routes, roles),
        *serving(EGRESS, tail.routes, roles),
        *serving(INGRESS, publishing, roles),
        *serving(EGRESS, [operation for operation in records.routes if operation not in publishing], roles),
        *_proxy_operations(settings),
        *serving(CONSOLE, console_operations(), roles),
    ]


def _proxy_operations(settings: GatewaySettings) -> list[Operation[RestServices]]:
    """Confluent's REST Proxy."""
    managing = [
        *clusters.clusters_routes,
        *clusters.routes,
        *topics.routes,
        *topics.partition_routes,
        *configs.topic_routes,
        *configs.broker_routes,
        *cluster_configs.routes,
        *acls.routes,
        *reassignments.routes,
        *groups.routes,
        *groups.lag_routes,
    ]
    roles = settings.roles
    reading = [operation for operation in v2_topics.routes if operation.path.endswith("/records")]
    return [
        *serving(METADATA_ROLES, [operation for operation in v2_topics.routes if operation not in reading], roles),
        *serving(EGRESS, reading, roles),
        *serving(INGRESS, produce.operations(settings.budgets.produce_records_max), roles),
        *serving(EGRESS, [*consumers.routes, *consumers.position_routes], roles),
        *serving(CONSOLE, map(with_v3_codes, managing), roles),
        *serving(INGRESS, v3_records.routes, roles),
    ]


def rest_application(settings: GatewaySettings, bodies: BodyReader, load: Load) -> Application[RestServices]:
    """The application of the REST port."""
    return Application(
        rest_operations(settings),
        limits=settings.limits,
        sockets={tail.PATH: tail.follow} if EGRESS in settings.roles else {},
        invalid_status=_invalid_status,
        read_json=bodies.read,
        load=load,
    )


def public_application(
    settings: GatewaySettings, bodies: BodyReader, load: Load, admin: Admin, sign_in: ConsoleSignIn
) -> BoundApplication:
    """The public resources of the REST port, which need no sign-in."""
    operations: list[Operation[Never]] = [*rest_operations(settings), *health_routes]
    described = document(operations, title="Penstock REST", version=__version__, description=DESCRIPTION)
    console: list[Operation[PublicServices]] = serving(CONSOLE, [*sign_in_routes, *pages.routes], settings.roles)
    application: Application[PublicServices] = Application(
        [*health_routes, *front_routes, *console], limits=settings.limits, read_json=bodies.read, load=load
    )
    return application.bind(PublicServices(admin, sign_in, described, docs_page(described)))


front_routes: Routes[PublicServices] = Routes("Health")


@front_routes.on("GET /", "Redirect browsers to the console; list the entry points for other clients.")
async def front(_: PublicServices, call: Call) -> Response:
    accepted = call.request.headers.get("accept", "")
    if "text/html" in accepted:
        return RedirectResponse("console/")
    # Clients of the REST Proxy check that it is up with this request, and expect an empty object.
    return answer({}) if V2_PREFIX in accepted else json_response(FRONT)


@front_routes.on("GET /openapi.json", "Get the OpenAPI document of this API.")
async def openapi(services: PublicServices, _: Call) -> Response:
    return json_response(services.document)


@front_routes.on("GET /docs", "Show this API's documentation page.", answer_type="text/html")
async def docs(services: PublicServices, _: Call) -> Response:
    return HTMLResponse(services.page, headers=docs_headers())


health_routes: Routes[PublicServices] = Routes("Health", "/status")


@health_routes.on("GET /ready", "Check that the brokers can be reached.", always_served=True)
async def ready(services: PublicServices, _: Call) -> Response:
    await services.admin.names()
    return json_response({"status": "ready"})


@health_routes.on("GET /alive", "Answer.", always_served=True)
async def alive(_services: PublicServices, _: Call) -> Response:
    return json_response({"status": "alive"})


def _invalid_status(path: str) -> int:
    """The status for invalid bodies: 422 in the REST Proxy's v2, otherwise 400."""
    words = path.strip("/").split("/")
    v2_produce = words[0] == "topics" and (len(words) == 2 or (len(words) == 4 and words[2] == "partitions"))
    return 422 if words[0] == "consumers" or v2_produce else 400
