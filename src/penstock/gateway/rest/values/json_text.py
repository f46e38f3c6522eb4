"""JSON text of untrusted data: unpaired surrogates, NaN and deep nesting do not break it."""

from __future__ import annotations

import json

from penstock.gateway.web.bodies import reject_constant
from penstock.gateway.web.problem import Problem

_compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_escaped = json.JSONEncoder(separators=(",", ":")).encode


def json_bytes(value: object) -> bytes:
    """A parsed JSON value as compact JSON. Unpaired surrogates stay escaped."""
    try:
        try:
            return _compact(value).encode()
        except UnicodeEncodeError:
            return _escaped(value).encode()
    except RecursionError:
        raise Problem(40002, "the value is nested too deeply", "send a flatter one") from None


# Numbers are not parsed: very long ones take very long, and `len` takes no time.
_check = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=reject_constant).decode


def is_json(text: str) -> bool:
    """Whether a text is standard JSON. Raises RecursionError if it is nested too deeply to tell."""
    try:
        _check(text)
    except ValueError:
        return False
    return True
