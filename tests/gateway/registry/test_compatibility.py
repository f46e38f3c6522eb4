"""A matrix of changes with known answers, for the three formats and the seven levels."""

from __future__ import annotations

import pytest
from compatibility_cases import AVRO_CASES, JSON_CASES, PROTOBUF_CASES, Case

from penstock.gateway.registry.compatibility import Level, incompatibilities
from penstock.gateway.registry.parsing import parse

CASES = [
    pytest.param(schema_type, case, id=f"{schema_type}: {case.name}")
    for schema_type, cases in (("AVRO", AVRO_CASES), ("JSON", JSON_CASES), ("PROTOBUF", PROTOBUF_CASES))
    for case in cases
]


@pytest.mark.parametrize(("schema_type", "case"), CASES)
def test_compatibility_cases(schema_type: str, case: Case) -> None:
    old, new = parse(schema_type, case.old), parse(schema_type, case.new)
    answers = {
        Level.BACKWARD: case.backward,
        Level.FORWARD: case.forward,
        Level.FULL: case.backward and case.forward,
        Level.NONE: True,
    }
    for level, allowed in answers.items():
        found = incompatibilities(level, new, [(1, old)])
        assert (found == []) is allowed, (level, found)


@pytest.mark.parametrize(("schema_type", "case"), CASES)
def test_every_schema_is_compatible_with_itself(schema_type: str, case: Case) -> None:
    for text in (case.old, case.new):
        schema = parse(schema_type, text)
        assert incompatibilities(Level.FULL_TRANSITIVE, schema, [(1, schema)]) == []


def avro(*fields: str) -> str:
    return f'{{"type":"record","name":"R","fields":[{",".join(fields)}]}}'


FIRST = avro('{"name":"a","type":"int"}')
SECOND = avro('{"name":"a","type":"int"}', '{"name":"b","type":"int","default":0}')
THIRD = avro('{"name":"a","type":"int"}', '{"name":"b","type":"int"}')


def test_transitive_levels_compare_all_versions() -> None:
    older = [(1, parse("AVRO", FIRST)), (2, parse("AVRO", SECOND))]
    third = parse("AVRO", THIRD)
    assert incompatibilities(Level.BACKWARD, third, older) == []
    found = incompatibilities(Level.BACKWARD_TRANSITIVE, third, older)
    assert len(found) == 1
    assert "version 1" in found[0]
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in found[0]


def test_forward_transitive_compares_all_versions() -> None:
    older = [(1, parse("AVRO", THIRD)), (2, parse("AVRO", SECOND))]
    first = parse("AVRO", FIRST)
    assert incompatibilities(Level.FORWARD, first, older) == []
    assert len(incompatibilities(Level.FORWARD_TRANSITIVE, first, older)) == 1


def test_schema_of_another_type_is_never_compatible() -> None:
    found = incompatibilities(Level.BACKWARD, parse("JSON", '{"type":"string"}'), [(1, parse("AVRO", '"string"'))])
    assert "SCHEMA_TYPE_CHANGED" in found[0]
