"""Slices of JSON texts: the same parts that a parser finds, with every digit that was written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.rest.values.json_verbatim import compact, elements, member

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), VALUES, min_size=1), st.sampled_from([None, 1]), st.booleans())
def test_members_equal_those_of_a_parser(value: dict[str, object], indent: int | None, escaped: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escaped)
    for name, inner in value.items():
        assert json.loads(member(text, name)) == inner


@given(st.lists(VALUES), st.sampled_from([None, 1]))
def test_elements_equal_those_of_a_parser(values: list[object], indent: int | None) -> None:
    assert [json.loads(each) for each in elements(json.dumps(values, indent=indent))] == values


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_compact_text_has_the_same_value(value: object, indent: int | None, escaped: bool) -> None:
    written = compact(json.dumps(value, indent=indent, ensure_ascii=escaped))
    assert json.loads(written) == value
    assert written == compact(written.decode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9223372036854775807", b"9223372036854775807"),
        ("[12.30, 1e400, -0.0]", b"[12.30,1e400,-0.0]"),
        ('{"b": 1, "a": 2, "a" : 3}', b'{"b":1,"a":2,"a":3}'),
        ('"caf\\u00e9 : , "', '"café : , "'.encode()),
        ('"\\ud800"', b'"\\ud800"'),
    ],
)
def test_no_registered_schema_is_lost(text: str, expected: bytes) -> None:
    assert compact(text) == expected
    assert compact(member(f' {{"x": [{{}}], "data" : {text} }}', "data")) == expected
