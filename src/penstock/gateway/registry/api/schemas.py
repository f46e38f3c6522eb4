"""`/schemas`: schemas by id, by guid, or all of them."""

from __future__ import annotations

from starlette.responses import Response

from penstock.gateway.registry import errors
from penstock.gateway.registry.api.access import first_readable, readable, some_readable, text_for
from penstock.gateway.registry.api.services import RegistryServices
from penstock.gateway.registry.api.shapes import (
    DELETED,
    FORMAT,
    IN_PATHS,
    IN_SUBJECT,
    PAGE,
    answer,
    describe,
    page,
    text_answer,
)
from penstock.gateway.registry.schema import SCHEMA_TYPES, StoredSchema
from penstock.gateway.registry.subjects import context_of, parse_subject
from penstock.gateway.web.operations import Call, Routes
from penstock.gateway.web.parameters import flag, query

TAG = "Schemas"
# What a list of schemas has at most, unless its first is larger: it is built and encoded at once.
LISTED_BYTES_MAX = 4 * 1024 * 1024
FETCH_MAX_ID = flag("fetchMaxId", "Include the highest id.")


routes: Routes[RegistryServices] = Routes(TAG, "/schemas", IN_PATHS)


@routes.on(
    "GET",
    "List all schemas with their subjects.",
    query("subjectPrefix", "Only subjects with this prefix.", default=""),
    DELETED,
    flag("latestOnly", "Only the latest version of each subject."),
    *PAGE,
    answers={200: {"type": "array", "items": {"type": "object"}}},
)
async def all_schemas(services: RegistryServices, call: Call) -> Response:
    found = []
    prefix = call["subjectPrefix"].removeprefix(":*:")
    for subject in services.registry.state.subjects():
        if subject.startswith(prefix):
            versions = services.registry.state.versions(subject, deleted=call["deleted"])
            found += versions[-1:] if call["latestOnly"] else versions
    found = page(call, await readable(services.rights, found))
    return answer([describe(schema, deleted=schema.deleted) for schema in _up_to(found, LISTED_BYTES_MAX)])


@routes.on("GET /types", "List the formats of schemas.")
async def types(_services: RegistryServices, _: Call) -> Response:
    return answer(list(SCHEMA_TYPES))


def holders(services: RegistryServices, call: Call) -> list[StoredSchema]:
    found = services.registry.state.with_id(parse_subject(call["subject"]).context, call["id"])
    if not found:
        raise errors.schema_not_found(call["id"])
    return sorted(found, key=lambda schema: (schema.subject, schema.version))


@routes.on("GET /ids/{id}", "Show a schema.", IN_SUBJECT, FORMAT, FETCH_MAX_ID)
async def by_id(services: RegistryServices, call: Call) -> Response:
    schema = await first_readable(services.rights, holders(services, call))
    text = await text_for(services.rights, services.registry.state, schema, call["format"])
    shown = {**schema.contents(text), "guid": schema.guid}
    if call["fetchMaxId"]:
        shown["maxId"] = services.registry.state.last_id(context_of(schema.subject))
    return answer(shown)


@routes.on("GET /ids/{id}/schema", "Show a schema's text.", IN_SUBJECT, FORMAT)
async def text_by_id(services: RegistryServices, call: Call) -> Response:
    schema = await first_readable(services.rights, holders(services, call))
    return text_answer(schema, await text_for(services.rights, services.registry.state, schema, call["format"]))


@routes.on("GET /ids/{id}/subjects", "List the subjects of an id.", IN_SUBJECT, DELETED, *PAGE)
async def subjects_of(services: RegistryServices, call: Call) -> Response:
    allowed = await some_readable(services.rights, holders(services, call))
    found = [schema for schema in allowed if call["deleted"] or not schema.deleted]
    return answer(page(call, list(dict.fromkeys(schema.subject for schema in found))))


@routes.on("GET /ids/{id}/versions", "List the versions of an id.", IN_SUBJECT, DELETED, *PAGE)
async def versions_of(services: RegistryServices, call: Call) -> Response:
    allowed = await some_readable(services.rights, holders(services, call))
    found = [schema for schema in allowed if call["deleted"] or not schema.deleted]
    return answer(page(call, [{"subject": each.subject, "version": each.version} for each in found]))


def with_guid(services: RegistryServices, call: Call) -> list[StoredSchema]:
    wanted = call["guid"].lower()
    found = [
        schema
        for subject in services.registry.state.subjects()
        for schema in services.registry.state.versions(subject)
        if schema.guid == wanted
    ]
    if not found:
        raise errors.schema_not_found(wanted)
    return found


@routes.on("GET /guids/{guid}", "Show a schema by its guid.", FORMAT)
async def by_guid(services: RegistryServices, call: Call) -> Response:
    schema = await first_readable(services.rights, with_guid(services, call))
    text = await text_for(services.rights, services.registry.state, schema, call["format"])
    return answer({**schema.contents(text), "guid": schema.guid})


@routes.on("GET /guids/{guid}/ids", "List the ids of a guid.")
async def ids_of_guid(services: RegistryServices, call: Call) -> Response:
    found = await some_readable(services.rights, with_guid(services, call))
    pairs = {(context_of(schema.subject), schema.id) for schema in found}
    return answer([{"context": context, "id": schema_id} for context, schema_id in sorted(pairs)])


def _up_to(schemas: list[StoredSchema], bytes_max: int) -> list[StoredSchema]:
    """The first of the schemas, until their texts exceed a size. A caller continues at the next offset."""
    size_bytes = 0
    for index, schema in enumerate(schemas):
        size_bytes += len(schema.text)
        if index and size_bytes > bytes_max:
            return schemas[:index]
    return schemas
