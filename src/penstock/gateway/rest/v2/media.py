"""The REST Proxy's v2 media types, and keys and values in each of its formats."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.rest.shapes import from_base64
from penstock.gateway.web.application import json_response
from penstock.gateway.web.problem import Problem

V2_TYPE = "application/vnd.kafka.v2+json"
FORMATS = ("binary", "json", "avro", "jsonschema", "protobuf")
PRODUCE_TYPES = tuple(f"application/vnd.kafka.{name}.v2+json" for name in FORMATS)
PLAIN_TYPES = (V2_TYPE, "application/json", "application/vnd.kafka+json")
# How many of the types that a caller accepts are looked at.
ACCEPTED_MAX = 100
SCHEMA_FORMATS = FORMATS[2:]


def answer(value: object, status: int = 200, media_type: str = V2_TYPE) -> Response:
    """A v2 response."""
    return json_response(value, status, media_type)


def nothing() -> Response:
    """An empty response (204)."""
    return Response(status_code=204)


def format_of(media_type: str) -> str | None:
    """The format that a media type names; None for other types."""
    name = media_type.partition(";")[0].strip().lower()
    for each in FORMATS:
        if name == f"application/vnd.kafka.{each}.v2+json":
            return each
    return None


def produce_format(request: Request) -> str:
    """The format of a produce request from its media type; binary by default."""
    return format_of(request.headers.get("content-type", "")) or "binary"


def accepted_format(request: Request, default: str) -> str:
    """The format that the caller accepts; 406 for unknown types."""
    wanted = request.headers.get("accept", "*/*")
    for word in wanted.split(",", ACCEPTED_MAX)[:ACCEPTED_MAX]:
        found = format_of(word)
        if found is not None:
            return found
        if word.partition(";")[0].strip() in ("*/*", "application/*", *PLAIN_TYPES):
            return default
    raise Problem(406, f"records cannot be returned as {wanted[:100]}", f"accept one of {', '.join(PRODUCE_TYPES)}")


def to_bytes(value: object, where: str) -> bytes | None:
    """The bytes of a key or value in the binary format."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise Problem(422, f"{where} is not base64 text", "send a base64 string, or use the json media type")
    return from_base64(value, where, 422)
