"""The rights that each operation of the registry requires."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from starlette.responses import Response

from penstock.gateway.kafka.errors import not_allowed
from penstock.gateway.registry.api.services import RegistryServices
from penstock.gateway.registry.lookup import referenced_subjects, text_of
from penstock.gateway.registry.rights import Right, SubjectRights
from penstock.gateway.registry.schema import StoredSchema
from penstock.gateway.registry.state import RegistryState
from penstock.gateway.registry.subjects import context_of, in_context, parse_subject
from penstock.gateway.web.operations import Call, Operation
from penstock.gateway.web.problem import Problem

# Methods and path prefixes, with the rights that they require. All others require the right to read.
TAKES = (
    ("POST", "/subjects/{subject}/versions", Right.REGISTER),
    ("DELETE", "/subjects/", Right.DELETE),
    ("PUT", "/config", Right.CONFIGURE),
    ("DELETE", "/config", Right.CONFIGURE),
    ("PUT", "/mode", Right.CONFIGURE),
    ("DELETE", "/mode", Right.CONFIGURE),
)

CHECKED_TOGETHER = 100


def right_of(operation: Operation[RegistryServices]) -> Right:
    """The right on its subject that an operation requires."""
    for method, beginning, right in TAKES:
        if operation.method == method and operation.path.startswith(beginning):
            return right
    return Right.READ


def with_rights(operation: Operation[RegistryServices]) -> Operation[RegistryServices]:
    """The operation, for callers with the right that it requires. Operations without a subject in their path filter."""
    right, handler = right_of(operation), operation.handler
    has_subject = "{subject}" in operation.path
    if right is Right.READ and not has_subject:
        return operation

    async def handle(services: RegistryServices, call: Call) -> Response:
        rights = services.rights
        subject = parse_subject(call["subject"]).qualified if has_subject else ""
        await rights.check(subject, right)
        for referenced in _references(call, subject):
            await rights.check(referenced, Right.READ)
        return await handler(services, call)

    return replace(operation, handler=handle)


def _references(call: Call, subject: str) -> Iterable[str]:
    """Subjects that the schema in the body refers to: the response could reveal their contents."""
    references = call.body.get("references") if isinstance(call.body, dict) else None
    return {in_context(context_of(subject), each["subject"]) for each in references or ()}


async def readable(rights: SubjectRights, schemas: Sequence[StoredSchema]) -> list[StoredSchema]:
    """Those of the schemas whose subjects the caller may read."""
    allowed = await rights.readable({schema.subject for schema in schemas})
    return [schema for schema in schemas if schema.subject in allowed]


async def first_readable(rights: SubjectRights, schemas: Sequence[StoredSchema]) -> StoredSchema:
    """The first of the schemas that the caller may read; 403 if there is none.

    Any number of subjects may have registered the same text, so they are checked a few at a time.
    """
    for start in range(0, len(schemas), CHECKED_TOGETHER):
        allowed = await readable(rights, schemas[start : start + CHECKED_TOGETHER])
        if allowed:
            return allowed[0]
    raise _none_readable()


async def text_for(rights: SubjectRights, state: RegistryState, schema: StoredSchema, form: str) -> str:
    """A stored schema's text in a form of its format; 403 if that contains schemas that the caller may not read."""
    if form:
        referenced = referenced_subjects(state, schema)
        if referenced and referenced - await rights.readable(referenced):
            raise not_allowed(
                f"the form {form} contains schemas that {schema.subject} refers to, and it takes the right DESCRIBE "
                "on the topics of all of them"
            )
    return text_of(state, schema, form)


async def some_readable(rights: SubjectRights, schemas: Sequence[StoredSchema]) -> list[StoredSchema]:
    """Like `readable`; 403 if there is none. Ids can be guessed, so the error does not reveal their subjects."""
    allowed = await readable(rights, schemas)
    if not allowed:
        raise _none_readable()
    return allowed


def _none_readable() -> Problem:
    return not_allowed("it takes the right DESCRIBE on the topic of a subject that has this schema")
