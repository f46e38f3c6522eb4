"""Bodies of requests: never longer than allowed, of the declared type, and of the declared shape."""

from __future__ import annotations

import json
from typing import Any

from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from starlette.requests import Request

from penstock.gateway.web.operations import Body
from penstock.gateway.web.problem import Problem

SHOWN_MAX = 160


async def read_body(request: Request, size_max: int) -> bytes:
    """The whole body; 413 as soon as it is known to be longer than `size_max`."""
    declared = request.headers.get("content-length")
    if declared is not None and declared.isdigit() and int(declared) > size_max:
        raise _too_large(size_max)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > size_max:
            raise _too_large(size_max)
        parts.append(part)
    return b"".join(parts)


def _too_large(size_max: int) -> Problem:
    return Problem(413, 413, f"the body is longer than {size_max} bytes", "send it in smaller parts")


def check_media_type(request: Request, body: Body) -> None:
    """415 for a type that the operation does not take. No type at all is taken as the first one."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent and sent not in body.media_types and "*/*" not in body.media_types and sent != "application/*":
        raise Problem(415, 415, f"bodies of type {sent} are not taken here", f"use {', '.join(body.media_types)}")


def parse_json(raw: bytes, invalid_status: int) -> Any:
    """The value of a JSON text; `invalid_status` where it is none."""
    try:
        return json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        code = invalid_status if invalid_status != 400 else 40002
        raise Problem(invalid_status, code, f"the body is not JSON: {error}"[:SHOWN_MAX], "send JSON text") from None


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def check_shape(value: Any, validator: Validator, status: int) -> None:
    """`status` with the place and the reason where the value does not fit the schema."""
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
