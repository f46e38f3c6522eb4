"""`/subjects`: names, lookup of a schema, deletion."""

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
)
from penstock.gateway.registry.decisions import delete_subject
from penstock.gateway.registry.lookup import find_same, parse_source, pinned
from penstock.gateway.registry.subjects import DEFAULT_CONTEXT, checked_subject, context_of
from penstock.gateway.web.operations import Call, Routes
from penstock.gateway.web.parameters import flag, query

TAG = "Subjects"


routes: Routes[RegistryServices] = Routes(TAG, "/subjects", IN_PATHS)


@routes.on(
    "GET",
    "List the subjects.",
    query("subjectPrefix", "Only names with this prefix; `:*:` for all contexts.", default=":*:"),
    DELETED,
    flag("deletedOnly", "Only soft-deleted subjects."),
    *PAGE,
    answers={200: {"type": "array", "items": {"type": "string"}}},
)
async def list_subjects(services: RegistryServices, call: Call) -> Response:
    prefix = call["subjectPrefix"]
    names = []
    for name in services.registry.state.subjects():
        if not _matches(name, prefix):
            continue
        live = bool(services.registry.state.live_versions(name))
        gone = any(schema.deleted for schema in services.registry.state.versions(name))
        if (gone and not live) if call["deletedOnly"] else (live or call["deleted"]):
            names.append(name)
    allowed = await services.rights.readable(names)
    return answer(page(call, [name for name in names if name in allowed]))


@routes.on(
    "POST /{subject}",
    "Look up the version under which a schema is registered in a subject.",
    NORMALIZE,
    DELETED,
    FORMAT,
    body=SCHEMA_BODY,
)
async def look_up(services: RegistryServices, call: Call) -> Response:
    subject = checked_subject(call["subject"])
    versions = services.registry.state.versions(subject, deleted=call["deleted"])
    if not versions:
        raise errors.subject_not_found(subject)
    source = pinned(services.registry.state, context_of(subject), source_of(call.body))
    parsed = parse_source(services.registry.state, context_of(subject), source)
    texts = [parsed.normalized, parsed.canonical] if call["normalize"] else [parsed.canonical]
    for text in texts:
        found = find_same(services.registry.state, subject, source, text, deleted=call["deleted"])
        if found is not None:
            return answer(
                describe(found, await text_for(services.rights, services.registry.state, found, call["format"]))
            )
    raise errors.schema_not_found()


@routes.on(
    "DELETE /{subject}",
    "Delete a subject: first softly, then permanently.",
    flag("permanent", "Permanently delete what was soft-deleted."),
    answers={200: {"type": "array", "items": {"type": "integer"}}},
)
async def delete(services: RegistryServices, call: Call) -> Response:
    subject = checked_subject(call["subject"])
    return answer(
        await services.registry.write(lambda state: delete_subject(state, subject, permanent=call["permanent"]))
    )


def _matches(name: str, prefix: str) -> bool:
    """Whether a subject matches: `:*:` covers all contexts, an empty prefix the default one."""
    if prefix.startswith(":*:"):
        bare = name.split(":", 2)[2] if name.startswith(":.") else name
        return bare.startswith(prefix[3:])
    return name.startswith(prefix) and (bool(prefix) or context_of(name) == DEFAULT_CONTEXT)
