"""Catastrophic regular expressions must not delay any caller but their author."""

from __future__ import annotations

import json
import math
import time
import uuid
from typing import Any

import httpx
import pytest

from penstock.gateway.registry.formats.json_format import JsonSchema
from penstock.gateway.registry.patterns import is_quick, steps
from penstock.gateway.registry.schema import SchemaUnusable
from penstock.gateway.rest.values.json_schema_check import check

HOSTILE = "^(a+)+$"
VICTIM = "a" * 40 + "!"


@pytest.mark.parametrize(
    "pattern",
    ["", "abc", "^[a-z]+$", r"^\d{4}-\d{2}-\d{2}$", "^(red|green|blue)$", "^[A-Z]{2}[0-9]+$", "^a?b?c?$", r"^\w+@\w+$"],
)
def test_everyday_patterns_are_quick(pattern: str) -> None:
    assert is_quick(pattern, 200)


@pytest.mark.parametrize(
    "pattern",
    [HOSTILE, "(a|a)*b", "(ab|a|b)+c", r"(.*)*x", "a*a*a*a*a*b", r"(\w+\s?)*!", r"(a*)\1", "(", "(a{1,50}){1,50}"],
)
def test_patterns_that_may_backtrack_forever_are_detected(pattern: str) -> None:
    assert not is_quick(pattern, 200)


def test_steps_depend_on_the_length_of_the_text() -> None:
    assert is_quick("a+b", 100)
    assert not is_quick("a+b", 10_000)
    assert steps(HOSTILE, 3) == math.inf
    assert not is_quick("a" * 20_000, 1)


def test_catastrophic_pattern_is_rejected_in_schema_comparison() -> None:
    closed = {"type": "object", "additionalProperties": False}
    older = JsonSchema(json.dumps({**closed, "patternProperties": {HOSTILE: {"type": "string"}}}))
    newer = JsonSchema(json.dumps({**closed, "properties": {VICTIM: {"type": "string"}}}))
    with pytest.raises(SchemaUnusable, match="too long"):
        newer.unreadable(older)


def test_values_are_checked_with_their_references() -> None:
    schema = json.dumps({"type": "object", "properties": {"to": {"$ref": "address.json"}}})
    address = json.dumps({"type": "object", "required": ["street"]})
    assert check(schema, [("address.json", address)], {"to": {"street": "x"}}) is None
    assert "street" in (check(schema, [("address.json", address)], {"to": {}}) or "")
    assert "does not exist" in (check(schema, [], {"to": {}}) or "")
    assert "not a valid regular expression" in (check('{"pattern": "("}', [], "x") or "")


def test_value_against_a_catastrophic_pattern_is_rejected_in_time(rest: httpx.Client) -> None:
    topic = f"hostile-{uuid.uuid4().hex[:8]}"
    assert rest.post("/topics", json={"name": topic}).status_code == 201
    body: dict[str, Any] = {
        "value_schema": json.dumps({"type": "string", "pattern": HOSTILE}),
        "records": [{"value": VICTIM}],
    }
    began = time.monotonic()
    answer = rest.post(
        f"/topics/{topic}", json=body, headers={"Content-Type": "application/vnd.kafka.jsonschema.v2+json"}
    )
    assert answer.status_code == 422
    assert "took longer than" in answer.json()["message"]
    assert time.monotonic() - began < 20
