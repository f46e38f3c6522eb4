"""Bodies of requests: never longer than allowed, of the declared type, and of the declared shape."""

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
from penstock.gateway.web.problem import Problem
from penstock.gateway.web.shares import Shares, caller_of

SHOWN_MAX = 160
SMALL_BODY_BYTES = 64 * 1024


def no_constant(text: str) -> Any:
    """For decoders of JSON: NaN and its like are none."""
    raise ValueError(f"{text} is not JSON")


_decode = json.JSONDecoder(parse_constant=no_constant).decode


@contextlib.asynccontextmanager
async def whole_body(request: Request, size_max: int, large: Shares) -> AsyncIterator[bytes]:
    """The whole body; 413 as soon as it is known to be longer than `size_max`.

    What it has beyond a small body's size is the caller's share of `large` for as long as the body is in use.
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
            large.give_back(caller, taken)


async def _read(scope: Scope, receive: Receive, size_max: int, reserve: Callable[[int], None]) -> bytes:
    declared = header_of(scope, b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > size_max:
        raise _too_large(size_max, f"{int(declared):,} bytes")
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem(400, 40000, "the connection closed in the middle of the body", "send it again")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > size_max:
            raise _too_large(size_max, f"at least {size:,} bytes")
        reserve(size)
        if not message.get("more_body", False):
            return b"".join([*parts, part]) if parts else part
        parts.append(part)


def header_of(scope: Scope, name: bytes) -> str | None:
    """A header of a request, without making a table of all of them; names are in small letters."""
    for each, value in scope["headers"]:
        if each == name:
            return str(value.decode("latin-1"))
    return None


def _too_large(size_max: int, size: str) -> Problem:
    why = f"the body has {size}, more than the {size_max:,} allowed (the limit body_bytes_max)"
    return Problem(413, 413, why, "send it in smaller parts")


def check_media_type(scope: Scope, body: Body) -> None:
    """415 for a type that the operation does not take. No type at all is taken as the first one."""
    sent = (header_of(scope, b"content-type") or "").partition(";")[0].strip().lower()
    # `curl -d` says that it sends a form unless it is told otherwise; no operation here takes forms.
    if sent == "application/x-www-form-urlencoded":
        return
    if sent and sent not in body.media_types and "*/*" not in body.media_types and sent != "application/*":
        raise Problem(415, 415, f"bodies of type {sent} are not taken here", f"use {', '.join(body.media_types)}")


def parse_json(raw: bytes, invalid_status: int) -> Any:
    """The value of a JSON text; `invalid_status` where it is none."""
    code = invalid_status if invalid_status != 400 else 40002
    try:
        return _decode(raw.decode("utf-8"))
    except RecursionError:
        raise Problem(invalid_status, code, "the body is nested too deeply", "send a flatter one") from None
    except ValueError as error:
        raise Problem(invalid_status, code, f"the body is not JSON: {error}"[:SHOWN_MAX], "send JSON text") from None


async def read_at_once(raw: bytes, body: Body, status: int) -> Any:
    """The value of a body of the declared shape, however long that takes."""
    value = parse_json(raw, status)
    if body.validator is not None:
        check_shape(value, body.validator, status)
    return value


def check_shape(value: Any, validator: Validator, status: int) -> None:
    """`status` with the place and the reason where the value does not fit the schema."""
    _check_lengths(value, validator.schema, status)
    try:
        error = best_match(validator.iter_errors(value))
    except RecursionError:
        raise Problem(status, status, "the body is nested too deeply", "send a flatter one") from None
    if error is not None:
        place = "".join(f"[{word}]" if isinstance(word, int) else f".{word}" for word in error.absolute_path)
        code = status if status != 400 else 40002
        raise Problem(
            status, code, f"the body does not fit at ${place}: {error.message[:SHOWN_MAX]}", "see /openapi.json"
        )


def _check_lengths(value: Any, schema: Any, status: int) -> None:
    """Lists of the body that are too long, before each of their entries is looked at."""
    if not isinstance(value, dict) or not isinstance(schema, dict):
        return
    for name, shape in schema.get("properties", {}).items():
        entries, limit = value.get(name), shape.get("maxItems")
        if isinstance(entries, list) and limit is not None and len(entries) > limit:
            named = f" (the limit {shape['x-limit']})" if "x-limit" in shape else ""
            code = status if status != 400 else 40002
            raise Problem(
                status,
                code,
                f"the body does not fit at $.{name}: it has {len(entries):,} entries, more than {limit:,}{named}",
                "send fewer at a time",
            )
