"""Values under a budget: which are decoded, why others are not, and pages where some records fail."""

from __future__ import annotations

import asyncio
import io
import json
import time
from dataclasses import replace
from typing import Any

import fastavro
import pytest

from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.registry.analysis import analyze
from penstock.gateway.registry.analysis_cache import AnalysisCache, AnalysisMissing
from penstock.gateway.registry.compatibility import Level
from penstock.gateway.registry.schema import AVRO, JSON, PROTOBUF, SchemaText, SchemaUnusable
from penstock.gateway.rest.values.avro_budget import OverBudget, SizeCheck
from penstock.gateway.rest.values.record_json import show_records, v2_records
from penstock.gateway.rest.values.schema_codec import _in_chunks
from penstock.gateway.rest.values.schema_values import SchemaMismatch, decode, encode_values
from penstock.gateway.web.application import json_response
from penstock.gateway.web.bodies import check_shape
from penstock.gateway.web.body_reader import Refusal, read_several, read_value
from penstock.gateway.web.operations import Validator
from penstock.gateway.web.problem import Problem
from penstock.gateway.work.budgets import DEFAULT_BUDGETS
from penstock.gateway.work.pool import WorkerPool, WorkFailed

TREE = {
    "type": "record",
    "name": "shop.Tree",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "again", "type": "Hash"},
        {"name": "maybe", "type": ["null", "double", "Kind"]},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "by_name", "type": {"type": "map", "values": ["null", "shop.Tree"]}},
        {"name": "flags", "type": {"type": "map", "values": "boolean"}},
        {"name": "nothing", "type": "null"},
        {"name": "small", "type": "float"},
    ],
}


def tree(*children: Any) -> dict[str, Any]:
    return {
        "name": "x" * 100,
        "price": b"\1\2",
        "at": 1_700_000_000_000,
        "kind": "B",
        "hash": b"abcd",
        "again": b"efgh",
        "maybe": 1.5,
        "children": list(children),
        "by_name": {"none": None, **({"one": children[0]} if children else {})},
        "flags": {"a": True, "b": False},
        "nothing": None,
        "small": 0.5,
    }


def test_measured_size_is_the_values_size() -> None:
    named: dict[str, Any] = {}
    parsed = fastavro.schema.parse_schema(TREE, named_schemas=named)
    out = io.BytesIO()
    # Sizes and times as they are on the wire.
    plain = json.loads(json.dumps(TREE).replace("logicalType", "was"))
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), tree(tree(), tree(tree())))
    data = out.getvalue()
    assert SizeCheck(named, DEFAULT_BUDGETS).check(parsed, data + b"more") == len(data)
    with pytest.raises(OverBudget, match=r"deeper than 5 \(the limit value_depth_max\)"):
        SizeCheck(named, replace(DEFAULT_BUDGETS, value_depth_max=5)).check(parsed, data)
    with pytest.raises(OverBudget, match=r"more values than 40 \(the limit value_count_max\)"):
        SizeCheck(named, replace(DEFAULT_BUDGETS, value_count_max=40)).check(parsed, data)
    with pytest.raises(OverBudget, match="too deeply"):
        SizeCheck({}, replace(DEFAULT_BUDGETS, value_depth_max=10**6)).check(endless(), b"")
    # A block's size may stand behind its count, which then is negative.
    nulls = fastavro.parse_schema({"type": "array", "items": "null"})
    assert SizeCheck({}, DEFAULT_BUDGETS).check(nulls, b"\x05\x00\x00") == 3


def endless() -> Any:
    record: dict[str, Any] = {"type": "record", "name": "R"}
    record["fields"] = [{"name": "inner", "type": record}]
    return record


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        (SchemaText(AVRO, '{"type": "array", "items": "null"}'), b"\x80\xda\xc4\x13\x00"),
        (SchemaText(AVRO, '"long"'), b""),
        (SchemaText(AVRO, '["null", "int"]'), b"\x7f"),
        (SchemaText(AVRO, "no JSON"), b""),
        (SchemaText(JSON, "{}"), b"[" * 50_000),
        (SchemaText(JSON, "{}"), b"\xff"),
        (SchemaText(JSON, "{}"), b"NaN"),
        (SchemaText(PROTOBUF, 'syntax = "proto3"; message M { M m = 1; }'), b"\0" + b"\x0a\x02" * 1000),
        (SchemaText(PROTOBUF, 'syntax = "proto3"; message M { M m = 1; }'), b"\x02\x01"),
        (SchemaText(PROTOBUF, "no proto"), b"\0"),
        (SchemaText("XML", "<a/>"), b""),
    ],
)
def test_undecodable_records_have_the_reason(schema: SchemaText, payload: bytes) -> None:
    with pytest.raises(SchemaMismatch) as failure:
        decode(schema, payload, DEFAULT_BUDGETS)
    assert str(failure.value)


def test_numbers_that_json_lacks_are_shown_by_name() -> None:
    nan, infinity = b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f"
    assert decode(SchemaText(AVRO, '"float"'), nan, DEFAULT_BUDGETS) == '"NaN"'
    assert decode(SchemaText(AVRO, '"float"'), infinity, DEFAULT_BUDGETS) == '"Infinity"'
    text = b'{"n": 12.30, "large": 1e400, "long": %b}' % (b"1" * 5000)
    assert decode(SchemaText(JSON, "{}"), text, DEFAULT_BUDGETS) == text.decode()
    assert json_response([float("nan"), {"a": float("inf")}, 1.5]).body == b'[null,{"a":null},1.5]'


def test_values_that_do_not_match_the_schema_do_not_affect_others() -> None:
    schemas = [SchemaText(AVRO, '"int"'), SchemaText(JSON, '{"type": "string"}')]
    good, bad, half = encode_values(schemas, [(0, 1), (0, "x"), (1, "\ud800")])
    assert good == b"\x02"
    assert isinstance(bad, str)
    assert half == b'"\\ud800"'


def record(value: bytes | None, **more: Any) -> ReadRecord:
    return ReadRecord("t", 0, 7, 1, None, value, [], **more)


def test_json_is_returned_verbatim() -> None:
    text = b'{"id": 9223372036854775808, "price": 12.30, "large": 1e400, "a": 1, "a": 2}'
    [shown] = v2_records([record(text)], "json", {}, DEFAULT_BUDGETS)
    assert isinstance(shown, bytes)
    assert text in shown
    for poison in (b"NaN", b"[1,]", b"\xff", b"[" * 50_000):
        [why] = v2_records([record(poison)], "json", {}, DEFAULT_BUDGETS)
        assert isinstance(why, str)


def test_records_without_contents_have_the_reason() -> None:
    gone = record(None, unreadable="it has too many bytes")
    [shown] = show_records([gone], "auto", "auto", {}, DEFAULT_BUDGETS)
    assert json.loads(shown)["value"]["note"] == "it has too many bytes"
    assert v2_records([gone], "binary", {}, DEFAULT_BUDGETS) == ["it has too many bytes"]


def test_one_bad_record_does_not_fail_a_page() -> None:
    """Items are seconds to sleep, so one of them takes for ever."""

    async def scenario() -> None:
        pool = WorkerPool("tests", DEFAULT_BUDGETS)

        async def work(chunk: list[float], deadline_s: float | None) -> list[str]:
            await pool.run(list, map(time.sleep, chunk), deadline_s=deadline_s)
            return ["slept"] * len(chunk)

        async def fails(chunk: list[float], deadline_s: float | None) -> list[str]:
            del chunk, deadline_s
            raise WorkFailed("no luck", "none")

        try:
            found = await _in_chunks([0.0, 600.0, 0.0], lambda _: 1, work, lambda _, why: why)
        finally:
            await pool.stop()
        assert found[::2] == ["slept", "slept"]
        assert "worker_deadline_ms" in found[1]
        # After a few failures no more are tried.
        given_up = await _in_chunks([0.0] * 10, lambda _: 1, fails, lambda _, why: why)
        assert given_up[:3] == ["no luck"] * 3
        assert set(given_up[3:]) == {"earlier records of the same request used up the time"}

    asyncio.run(scenario())


def test_bodies_with_too_many_values_are_refused() -> None:
    budgets = replace(DEFAULT_BUDGETS, body_values_max=10)
    assert read_value(b'{"a": [1, 2, 3]}', 400, None, budgets) == {"a": [1, 2, 3]}
    # Commas in texts are no values.
    assert read_value(b'["%b"]' % (b"," * 100), 400, None, budgets) == ["," * 100]
    refused = read_value(b"[1,2,3,4,5,6,7,8,9,10,11]", 400, None, budgets)
    assert isinstance(refused, Refusal)
    assert refused.code == 413
    assert "10 (the limit body_values_max)" in refused.message
    assert read_several(b"1 2\n[3]", 5, budgets) == [1, 2, [3]]
    assert isinstance(read_several(b"1 2 3", 2, budgets), Refusal)
    assert isinstance(read_several(b"1 2 ]", 5, budgets), Refusal)


def test_list_lengths_are_checked_before_their_entries() -> None:
    shape = {"properties": {"records": {"maxItems": 2, "x-limit": "produce_records_max"}}}
    with pytest.raises(Problem, match=r"3 entries, more than 2 \(the limit produce_records_max\)"):
        check_shape({"records": [1, 2, 3]}, Validator(shape), 422)


def test_schemas_that_are_too_much_to_compare_are_refused() -> None:
    analyses = AnalysisCache(replace(DEFAULT_BUDGETS, schemas_bytes_max=1000))
    new, old = SchemaText(AVRO, "x" * 10), SchemaText(AVRO, "y" * 100, (("z", "z" * 100),))
    with pytest.raises(AnalysisMissing):
        analyses.incompatibilities(Level.FULL_TRANSITIVE, new, [(1, old)])
    with pytest.raises(Problem, match="the limit schemas_bytes_max"):
        analyses.incompatibilities(Level.FULL_TRANSITIVE, new, [(number, old) for number in range(5)])


def test_analyses_are_cached_once_a_worker_has_answered() -> None:
    analyses = AnalysisCache()
    with pytest.raises(AnalysisMissing) as missing:
        analyses.texts(SchemaText(AVRO, ' "string" '))
    analyses.learn(missing.value.request, analyze(missing.value.request))
    assert analyses.texts(SchemaText(AVRO, ' "string" ')).canonical == '"string"'
    with pytest.raises(AnalysisMissing) as missing:
        analyses.texts(SchemaText(AVRO, "{"))
    analyses.learn(missing.value.request, analyze(missing.value.request))
    with pytest.raises(SchemaUnusable, match="not valid JSON"):
        analyses.texts(SchemaText(AVRO, "{"))
