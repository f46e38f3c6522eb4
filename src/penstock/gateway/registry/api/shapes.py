"""JSON shapes and parameters that several registry operations share, and responses built from stored schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from starlette.responses import PlainTextResponse, Response

from penstock.gateway.registry.schema import AVRO, PROTOBUF, SCHEMA_TYPES, Reference, Source, StoredSchema
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Body, Call, json_object
from penstock.gateway.web.parameters import Parameter, flag, number, path, query

REGISTRY_TYPE = "application/vnd.schemaregistry.v1+json"
MEDIA_TYPES = (
    "application/json",
    REGISTRY_TYPE,
    "application/vnd.schemaregistry+json",
    "application/octet-stream",
)

SUBJECT = path("subject", "The name of a subject, such as orders-value; `:.context:name` names one in a context.")
VERSION = path("version", "A version's number, or latest.")
SCHEMA_ID = path("id", "The id of a schema.", type="integer", minimum=0, maximum=(1 << 31) - 1)
GUID = path("guid", "A schema's guid.", pattern="^[0-9a-fA-F-]{32,36}$")
IN_PATHS = (SUBJECT, VERSION, SCHEMA_ID, GUID)
DELETED = flag("deleted", "Include soft-deleted ones.")
NORMALIZE = flag("normalize", "Normalize the schema before comparing.")
FORMAT = query("format", "resolved (Avro) or serialized (Protobuf); the stored text otherwise.", default="")
IN_SUBJECT = query("subject", "The subject in whose context the id is looked up.", default="")
OFFSET = number("offset", "How many entries to skip.", default=0)
LIMIT = number("limit", "How many entries to show at most; -1 for all.", minimum=-1, default=-1)
PAGE: tuple[Parameter, ...] = (OFFSET, LIMIT)

REFERENCE_SHAPE = json_object(
    ["name", "subject", "version"],
    name={"type": "string"},
    subject={"type": "string"},
    version={"type": "integer", "minimum": -1, "maximum": (1 << 31) - 1},
)
NULLABLE_OBJECT = {"type": ["object", "null"]}
SCHEMA_SHAPE: dict[str, Any] = json_object(
    ["schema"],
    schema={"type": "string", "description": "The text of the schema."},
    schemaType={"enum": [*SCHEMA_TYPES, "", None], "description": "AVRO when it is left out."},
    references={"type": ["array", "null"], "items": REFERENCE_SHAPE},
    metadata=NULLABLE_OBJECT,
    ruleSet=NULLABLE_OBJECT,
    id={"type": ["integer", "null"], "minimum": -1, "maximum": (1 << 31) - 1},
    version={"type": ["integer", "null"], "minimum": -1, "maximum": (1 << 31) - 1},
)
SCHEMA_BODY = Body(
    SCHEMA_SHAPE,
    MEDIA_TYPES,
    example={"schema": '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'},
)

Item = TypeVar("Item")


def answer(value: object, status: int = 200) -> Response:
    """A registry response."""
    return json_response(value, status, REGISTRY_TYPE)


def text_answer(schema: StoredSchema, text: str) -> Response:
    """The bare text of a schema. It is JSON, except for Protobuf."""
    return PlainTextResponse(text, media_type="text/plain" if schema.schema_type == PROTOBUF else REGISTRY_TYPE)


def page(call: Call, items: Sequence[Item]) -> list[Item]:
    """The requested page of a list."""
    start, limit = call["offset"], call["limit"]
    return list(items[start : start + limit] if limit > 0 else items[start:])


def source_of(body: dict[str, Any]) -> Source:
    """The schema in a request."""
    return Source(
        body.get("schemaType") or AVRO,
        body["schema"],
        tuple(Reference(each["name"], each["subject"], each["version"]) for each in body.get("references") or ()),
        body.get("metadata") or None,
        body.get("ruleSet") or None,
    )


def describe(schema: StoredSchema, text: str | None = None, *, deleted: bool = False) -> dict[str, object]:
    """A version in the API's form, with `text` in place of the stored text."""
    shown: dict[str, object] = {
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.id,
        "guid": schema.guid,
        **schema.contents(text),
    }
    if schema.timestamp_ms > 0:
        shown["ts"] = schema.timestamp_ms
    if deleted:
        shown["deleted"] = schema.deleted
    return shown
