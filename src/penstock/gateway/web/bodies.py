"""Request bodies: limited in size, of the declared media type, and matching the declared schema."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from starlette.requests import Request
from starlette.types import Receive, Scope

from penstock.gateway.web.operations import Body
from penstock.gateway.web.problem import Problem, invalid
from penstock.gateway.web.quotas import CallerQuota, caller_of

SHOWN_MAX = 160
SMALL_BODY_BYTES = 64 * 1024


def reject_constant(text: str) -> object:
    """For JSON decoders: reject NaN and Infinity."""
    raise ValueError(f"{text} is not JSON")


_decode = json.JSONDecoder(parse_constant=reject_constant).decode


@contextlib.asynccontextmanager
async def whole_body(request: Request, size_max: int, large: CallerQuota) -> AsyncIterator[bytes]:
    """The whole body; 413 as soon as it is known to be longer than `size_max`.

    What exceeds the size of a small body counts against the caller's share of `large` while the body is in use.
    """
    caller, taken = caller_of(request.scope), 0

    def reserve(size: int) -> None:
        nonlocal taken
        more = size - SMALL_BODY_BYTES - taken
        if more > 0:
            large.take(caller, more)
            taken += more

    try:
        yield await _read(request.scope, request.receive, size_max, reserve)
    finally:
        if taken:
            large.release(caller, taken)


async def _read(scope: Scope, receive: Receive, size_max: int, reserve: Callable[[int], None]) -> bytes:
    declared = header_of(scope, b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > size_max:
        raise _too_large(size_max, f"{int(declared):,} bytes")
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem(40000, "the connection closed in the middle of the body", "send it again")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > size_max:
            raise _too_large(size_max, f"at least {size:,} bytes")
        reserve(size)
        if not message.get("more_body", False):
            return b"".join([*parts, part]) if parts else part
        parts.append(part)


def header_of(scope: Scope, name: bytes) -> str | None:
    """A header of a request, without building a table of all headers; names are lower-case."""
    for each, value in scope["headers"]:
        if each == name:
            return str(value.decode("latin-1"))
    return None


def _too_large(size_max: int, size: str) -> Problem:
    why = f"the body has {size}, more than {size_max:,} (the limit body_bytes_max)"
    return Problem(413, why, "send less at a time")


def check_media_type(scope: Scope, body: Body) -> None:
    """415 for a type that the operation does not accept. Without a type the first one is assumed."""
    sent = (header_of(scope, b"content-type") or "").partition(";")[0].strip().lower()
    # `curl -d` declares a form by default; no operation here takes forms.
    if sent == "application/x-www-form-urlencoded":
        return
    if sent and sent not in body.media_types and "*/*" not in body.media_types and sent != "application/*":
        raise Problem(415, f"bodies of type {sent} are not accepted", f"use {', '.join(body.media_types)}")


def parse_json(raw: bytes, invalid_status: int) -> Any:
    """The value of a JSON text; raises Problem with `invalid_status` if it is not valid JSON."""
    try:
        return _decode(raw.decode("utf-8"))
    except RecursionError:
        raise invalid(invalid_status, "the body is nested too deeply", "send a flatter one") from None
    except ValueError as error:
        raise invalid(invalid_status, f"the body is not valid JSON: {error}"[:SHOWN_MAX], "send JSON text") from None


async def read_at_once(raw: bytes, body: Body, status: int) -> Any:
    """The value of a body that matches the declared schema, on the calling thread."""
    value = parse_json(raw, status)
    if body.validator is not None:
        check_shape(value, body.validator, status)
    return value


def check_shape(value: Any, validator: Validator, status: int) -> None:
    """Raises Problem with `status` and the location and reason if the value does not match the schema."""
    _check_lengths(value, validator.schema, status)
    try:
        error = best_match(validator.iter_errors(value))
    except RecursionError:
        raise Problem(status, "the body is nested too deeply", "send a flatter one") from None
    if error is not None:
        location = "".join(f"[{word}]" if isinstance(word, int) else f".{word}" for word in error.absolute_path)
        why = f"the body does not match the schema at ${location}: {error.message[:SHOWN_MAX]}"
        raise invalid(status, why, "see /openapi.json")


def _check_lengths(value: object, schema: object, status: int) -> None:
    """Reject lists that are too long before each of their entries is validated."""
    if not isinstance(value, dict) or not isinstance(schema, dict):
        return
    for name, shape in schema.get("properties", {}).items():
        entries, limit = value.get(name), shape.get("maxItems")
        if isinstance(entries, list) and limit is not None and len(entries) > limit:
            named = f" (the limit {shape['x-limit']})" if "x-limit" in shape else ""
            raise invalid(
                status,
                f"the body does not match the schema at $.{name}: {len(entries):,} entries, more than {limit:,}{named}",
                "send fewer at a time",
            )
