"""Parsing of schema texts, their stored form, and errors of invalid texts."""

from __future__ import annotations

import base64
import time

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from penstock.gateway.registry.parsing import parse
from penstock.gateway.registry.schema import Reference, SchemaUnusable, fingerprint

EVERYTHING = """
// A comment, and /* another */
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
option java_package = "com.shop";
message Order {
  option deprecated = true;
  reserved 100 to 200, 250;
  reserved "old";
  string id = 1;
  optional int32 count = 2 [deprecated = true, json_name = "howMany"];
  repeated Line lines = 3;
  map<string, Line> by_name = 4;
  oneof paid { string card = 5; bytes token = 6; }
  google.protobuf.Timestamp at = 7;
  State state = 8 [(my.rule) = { min: 1 max: { x: "}" } }];
  message Line { string sku = 1; double price = 2; }
  enum State { option allow_alias = true; NEW = 0; FRESH = 0; PAID = 1; }
}
service WorkerOptions { rpc Place (Order) returns (stream Order) { option deprecated = true; } }
"""

PROTO2 = """
syntax = "proto2";
message M {
  required string a = 1 [default = "x\\ty"];
  optional bytes b = 2 [default = "\\001z"];
  repeated group Item = 3 { optional int32 n = 1; }
  extensions 100 to max;
  optional float f = 4 [default = -1.5];
}
extend M { optional int32 extra = 100; }
"""


@pytest.mark.parametrize("text", [EVERYTHING, PROTO2], ids=["proto3", "proto2"])
def test_a_proto_text_stays_the_same_through_text_and_descriptor(text: str) -> None:
    schema = parse("PROTOBUF", text)
    assert parse("PROTOBUF", schema.canonical).canonical == schema.canonical
    assert parse("PROTOBUF", schema.normalized).normalized == schema.normalized


def test_a_serialized_descriptor_is_the_same_schema_as_its_text() -> None:
    text = parse("PROTOBUF", 'syntax = "proto3"; package p; message M { M inner = 1; map<int32, string> names = 2; }')
    serialized = text.formatted("serialized")
    assert parse("PROTOBUF", serialized).canonical == text.canonical
    file = FileDescriptorProto.FromString(base64.b64decode(serialized))
    assert [field.name for field in file.message_type[0].field] == ["inner", "names"]
    assert file.message_type[0].field[0].type_name == ".p.M"


def test_all_parts_of_a_proto_text_are_kept() -> None:
    canonical = parse("PROTOBUF", EVERYTHING).canonical
    for phrase in (
        'option java_package = "com.shop";',
        "reserved 100 to 200, 250;",
        'optional int32 count = 2 [json_name = "howMany", deprecated = true];',
        "map<string, Order.Line> by_name = 4;",
        ".google.protobuf.Timestamp at = 7;",
        '(my.rule) = { min : 1 max : { x : "}" } }',
        "rpc Place (.shop.v1.Order) returns (stream .shop.v1.Order) {",
    ):
        assert phrase in canonical


def test_names_of_nested_types_do_not_hide_others() -> None:
    text = 'syntax = "proto3"; package p; message A { message B { .p.B outer = 1; B inner = 2; } } message B {}'
    schema = parse("PROTOBUF", text)
    again = parse("PROTOBUF", schema.canonical)
    assert again.formatted("serialized") == schema.formatted("serialized")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('syntax = "proto3"; message M { string a = 0; }', "field numbers range from 1"),
        ('syntax = "proto3"; message M { string a = 1; int32 b = 1; }', "1"),
        ('syntax = "proto3"; message M { Missing a = 1; }', "Missing"),
        ('syntax = "proto3"; message M { string a = 1;', "end of the text"),
        ('syntax = "proto3"; message M { required string a = 1; }', "no required"),
        ('syntax = "proto9"; message M {}', "proto9"),
        ('syntax = "proto3"; import "other.proto"; message M {}', "references"),
        ('syntax = "proto3"; message M { string a 1; }', "line 1: expected '='"),
        ("message M { string a = 1; }", "optional, required or repeated"),
        ("nonsense here", "is not a statement"),
        ("AAAA", "neither"),
        ('syntax = "proto3"; message ' + "M { message " * 40 + "M {" + "}" * 41, "nested"),
    ],
)
def test_an_invalid_proto_is_rejected_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(SchemaUnusable, match=reason):
        parse("PROTOBUF", text)


def test_a_proto_imports_its_references() -> None:
    inner = 'syntax = "proto3"; package q; message Inner { string a = 1; }'
    text = 'syntax = "proto3"; import "inner.proto"; message M { q.Inner i = 1; }'
    assert "q.Inner i = 1;" in parse("PROTOBUF", text, (("inner.proto", inner),)).canonical


def test_avro_is_stored_in_one_order_without_wrappers() -> None:
    text = '{ "fields": [ {"type": {"type": "int"}, "name": "a"} ], "name": "R", "type": "record" }'
    assert parse("AVRO", text).canonical == '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'


def test_normalized_avro_has_full_names_and_sorted_properties() -> None:
    one = parse("AVRO", '{"type":"record","name":"R","namespace":"n","z":1,"b":2,"fields":[]}')
    other = parse("AVRO", '{"type":"record","name":"n.R","b":2,"z":1,"fields":[]}')
    assert one.canonical != other.canonical
    assert one.normalized == other.normalized


def test_avro_knows_the_names_of_its_references() -> None:
    inner = '{"type":"record","name":"n.Inner","fields":[{"name":"a","type":"int"}]}'
    text = '{"type":"record","name":"R","fields":[{"name":"i","type":"n.Inner"}]}'
    assert parse("AVRO", text, (("n.Inner", inner),)).canonical == text
    with pytest.raises(SchemaUnusable, match="not a valid Avro schema"):
        parse("AVRO", text)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"type":"record"}',
        '{"type":"enum","name":"E","symbols":["a","a"]}',
        '"nothing"',
        "[" * 5000,
        "null",
    ],
)
def test_an_invalid_avro_schema_is_rejected(text: str) -> None:
    with pytest.raises(SchemaUnusable):
        parse("AVRO", text)


def test_a_bare_type_name_is_avro() -> None:
    assert parse("AVRO", "string").canonical == '"string"'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "object or a boolean"),
        ('{"type":"strin"}', "#/type"),
        ('{"$ref":"#/definitions/none"}', "points to nothing"),
        ('{"$ref":"other.json"}', "references"),
        ('{"definitions":{"a":{"$ref":"#/definitions/a"}},"$ref":"#/definitions/a"}', "refers to itself"),
        ('{"not":' * 3000 + "{}" + "}" * 3000, "not valid JSON|too deep"),
    ],
)
def test_an_invalid_json_schema_is_rejected_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(SchemaUnusable, match=reason):
        parse("JSON", text)


def test_json_schema_finds_its_references_by_name_and_by_id() -> None:
    inner = '{"$id":"http://x/inner.json","type":"object","properties":{"a":{"type":"integer"}}}'
    wider = inner.replace("integer", "number")
    for address in ("inner.json", "http://x/inner.json", "inner.json#/properties/a"):
        text = f'{{"$ref":"{address}"}}'
        integer, number = (parse("JSON", text, (("inner.json", meant),)) for meant in (inner, wider))
        assert number.unreadable(integer) == []
        assert integer.unreadable(number), "what is behind the reference is compared"


def test_complex_alternatives_are_compared_or_rejected_quickly() -> None:
    branches = ",".join(f'{{"$ref":"#/definitions/d{i}"}}' for i in range(12))
    names = ",".join(f'"d{i}":{{"oneOf":[{branches}],"title":"{i}"}}' for i in range(12))
    schema = parse("JSON", f'{{"definitions":{{{names}}},"oneOf":[{branches}]}}')
    other = parse("JSON", f'{{"definitions":{{{names}}},"title":"other","oneOf":[{branches}]}}')
    assert schema.unreadable(other) == []


def test_fingerprints_tell_references_and_metadata_apart() -> None:
    prints = {
        fingerprint("x"),
        fingerprint("y"),
        fingerprint("x", [Reference("n", "s", 1)]),
        fingerprint("x", [Reference("n", "s", 2)]),
        fingerprint("x", metadata={"properties": {"a": "b"}}),
        fingerprint("x", rule_set={"domainRules": []}),
    }
    assert len(prints) == 6
    assert fingerprint("x", metadata={"a": 1, "b": 2}) == fingerprint("x", metadata={"b": 2, "a": 1})


@pytest.mark.parametrize(
    "member",
    [
        "message N{0} {{}} N{0} f{0} = {1};",
        "enum E{0} {{ V{0} = 0; }} E{0} f{0} = {1};",
        "oneof o{0} {{ int32 f{0} = {1}; }}",
    ],
)
def test_protobuf_messages_with_many_members_are_printed_in_linear_time(member: str) -> None:
    members = " ".join(member.format(number, number + 1) for number in range(4_000))
    began = time.process_time()
    parse("PROTOBUF", f'syntax = "proto3"; message M {{ {members} }}')
    assert time.process_time() - began < 3
