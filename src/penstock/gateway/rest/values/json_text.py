"""JSON texts of data that others wrote: unpaired surrogates, NaN and deep nesting do not break them."""

from __future__ import annotations

import json
from typing import Any

from penstock.gateway.web.bodies import no_constant
from penstock.gateway.web.problem import Problem

_compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_escaped = json.JSONEncoder(separators=(",", ":")).encode


def json_bytes(value: Any) -> bytes:
    """A value that came as JSON as compact JSON again. Half characters stay the escapes that they came as."""
    try:
        try:
            return _compact(value).encode()
        except UnicodeEncodeError:
            return _escaped(value).encode()
    except RecursionError:
        raise Problem(400, 40002, "a value is nested too deeply", "send a flatter one") from None


# Numbers are looked at, not made: some take very long to make, and `len` none at all.
_check = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=no_constant).decode


def is_json(text: str) -> bool:
    """Whether a text is JSON that others can read. RecursionError where it is nested too deeply to tell."""
    try:
        _check(text)
    except ValueError:
        return False
    return True
