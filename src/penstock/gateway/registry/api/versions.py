"""`/subjects/{subject}/versions`: registering schemas, and reading and deleting versions."""

from __future__ import annotations

from starlette.responses import Response

from penstock.gateway.registry import errors
from penstock.gateway.registry.api.access import text_for
from penstock.gateway.registry.api.services import RegistryServices
from penstock.gateway.registry.api.shapes import (
    DELETED,
    FORMAT,
    IN_PATHS,
    NORMALIZE,
    PAGE,
    SCHEMA_BODY,
    answer,
    describe,
    page,
    source_of,
    text_answer,
)
from penstock.gateway.registry.decisions import delete_version, register
from penstock.gateway.registry.lookup import find_version
from penstock.gateway.registry.schema import StoredSchema
from penstock.gateway.registry.subjects import checked_subject
from penstock.gateway.web.operations import Call, Routes
from penstock.gateway.web.parameters import flag, query
from penstock.gateway.web.problem import Problem

TAG = "Versions"
INTEGERS = {"type": "array", "items": {"type": "integer"}}


routes: Routes[RegistryServices] = Routes(TAG, "/subjects/{subject}/versions", IN_PATHS)


@routes.on(
    "GET",
    "List the versions of a subject.",
    DELETED,
    flag("deletedOnly", "Only soft-deleted versions."),
    *PAGE,
    answers={200: INTEGERS},
)
async def list_versions(services: RegistryServices, call: Call) -> Response:
    subject = checked_subject(call["subject"])
    everything = services.registry.state.versions(subject)
    if call["deletedOnly"]:
        shown = [schema for schema in everything if schema.deleted]
    else:
        shown = everything if call["deleted"] else services.registry.state.live_versions(subject)
    if not shown:
        raise errors.subject_not_found(subject)
    return answer(page(call, [schema.version for schema in shown]))


@routes.on("POST", "Register a schema as the next version of a subject.", NORMALIZE, body=SCHEMA_BODY)
async def register_schema(services: RegistryServices, call: Call) -> Response:
    subject = checked_subject(call["subject"])
    source, body = source_of(call.body), call.body
    wanted_id, version = body.get("id"), body.get("version")
    stored: StoredSchema = await services.registry.write(
        lambda state: register(
            state,
            subject,
            source,
            normalize=call["normalize"],
            schema_id=wanted_id if wanted_id is not None and wanted_id >= 0 else None,
            version=version if version is not None and version > 0 else None,
        )
    )
    # Clients cache this text and may want another form later, so none is sent.
    return answer({"id": stored.id, "version": stored.version, "guid": stored.guid})


@routes.on(
    "DELETE /{version}",
    "Delete a version: first softly, then permanently.",
    flag("permanent", "Permanently delete what was soft-deleted."),
    answers={200: {"type": "integer"}},
)
async def delete(services: RegistryServices, call: Call) -> Response:
    subject = checked_subject(call["subject"])
    version, permanent = call["version"], call["permanent"]
    return answer(
        await services.registry.write(lambda state: delete_version(state, subject, version, permanent=permanent))
    )


reading_routes: Routes[RegistryServices] = Routes(TAG, "/subjects/{subject}", IN_PATHS)


def chosen(services: RegistryServices, call: Call, *, deleted: bool = False) -> StoredSchema:
    subject = checked_subject(call["subject"])
    return find_version(services.registry.state, subject, call["version"], deleted=deleted or call["deleted"])


@reading_routes.on("GET /versions/{version}", "Show a version.", FORMAT, DELETED)
async def get_version(services: RegistryServices, call: Call) -> Response:
    schema = chosen(services, call)
    text = await text_for(services.rights, services.registry.state, schema, call["format"])
    return answer(describe(schema, text, deleted=schema.deleted))


@reading_routes.on("GET /versions/{version}/schema", "Show the bare text of a version.", FORMAT, DELETED)
async def get_text(services: RegistryServices, call: Call) -> Response:
    schema = chosen(services, call)
    return text_answer(schema, await text_for(services.rights, services.registry.state, schema, call["format"]))


@reading_routes.on(
    "GET /versions/{version}/referencedby",
    "List the ids of the schemas that refer to a version.",
    DELETED,
    *PAGE,
    answers={200: INTEGERS},
)
async def referenced_by(services: RegistryServices, call: Call) -> Response:
    # A deleted version can be looked up too; `deleted` applies to the schemas that refer to it.
    schema = chosen(services, call, deleted=True)
    referrers = services.registry.state.referrers(schema.subject, schema.version)
    return answer(page(call, [each.id for each in referrers if call["deleted"] or not each.deleted]))


@reading_routes.on(
    "GET /metadata",
    "Show the latest version whose metadata has these properties.",
    query("key", "A property's name."),
    query("value", "Its value."),
    FORMAT,
    DELETED,
)
async def by_metadata(services: RegistryServices, call: Call) -> Response:
    subject = checked_subject(call["subject"])
    sent = call.request.query_params
    keys, values = sent.getlist("key"), sent.getlist("value")
    if len(keys) != len(values):
        raise Problem(40001, "`key` and `value` must come in pairs", "send as many keys as values")
    wanted = dict(zip(keys, values, strict=True))
    versions = services.registry.state.versions(subject, deleted=call["deleted"])
    if not versions:
        raise errors.subject_not_found(subject)
    for schema in reversed(versions):
        properties = (schema.metadata or {}).get("properties") or {}
        if all(properties.get(key) == value for key, value in wanted.items()):
            return answer(
                describe(schema, await text_for(services.rights, services.registry.state, schema, call["format"]))
            )
    raise errors.schema_not_found()
