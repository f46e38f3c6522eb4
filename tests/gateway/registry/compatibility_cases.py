"""Known results: whether a schema that is `new` can read data of `old`, and the other way round."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """A pair of schemas; `backward`: new reads old; `forward`: old reads new."""

    name: str
    old: str
    new: str
    backward: bool
    forward: bool


def record(*fields: str, name: str = "R") -> str:
    return f'{{"type":"record","name":"{name}","fields":[{",".join(fields)}]}}'


A = '{"name":"a","type":"int"}'
B = '{"name":"b","type":"string"}'
B_DEFAULT = '{"name":"b","type":"string","default":""}'


def decimal(precision: int, scale: int) -> str:
    return f'{{"type":"bytes","logicalType":"decimal","precision":{precision},"scale":{scale}}}'


def fixed_decimal(scale: int) -> str:
    return f'{{"type":"fixed","name":"F","size":8,"logicalType":"decimal","precision":10,"scale":{scale}}}'


def enum(*symbols: str, default: str = "") -> str:
    listed = ",".join(f'"{symbol}"' for symbol in symbols)
    more = f',"default":"{default}"' if default else ""
    return f'{{"type":"enum","name":"E","symbols":[{listed}]{more}}}'


AVRO_CASES = [
    Case("the same schema", record(A), record(A), True, True),
    Case("a field with a default comes", record(A), record(A, B_DEFAULT), True, True),
    Case("a field without a default comes", record(A), record(A, B), False, True),
    Case("a field without a default goes", record(A, B), record(A), True, False),
    Case("a field with a default goes", record(A, B_DEFAULT), record(A), True, True),
    Case("a field gets a default", record(A, B), record(A, B_DEFAULT), True, True),
    Case("int becomes long", '"int"', '"long"', True, False),
    Case("int becomes double", '"int"', '"double"', True, False),
    Case("long becomes float", '"long"', '"float"', True, False),
    Case("float becomes double", '"float"', '"double"', True, False),
    Case("string becomes bytes", '"string"', '"bytes"', True, True),
    Case("int becomes string", '"int"', '"string"', False, False),
    Case("boolean becomes int", '"boolean"', '"int"', False, False),
    Case("a union grows", '["null","int"]', '["null","int","string"]', True, False),
    Case("a union shrinks", '["null","int","string"]', '["null","int"]', False, True),
    Case("a type becomes a union with it", '"int"', '["null","int"]', True, False),
    Case("a union becomes one of its types", '["null","int"]', '"int"', False, True),
    Case("a union changes its order", '["null","int"]', '["int","null"]', True, True),
    Case("an enum gets a symbol", enum("X"), enum("X", "Y"), True, False),
    Case("an enum loses a symbol", enum("X", "Y"), enum("X"), False, True),
    Case("an enum loses a symbol but has a default", enum("X", "Y"), enum("X", default="X"), True, True),
    Case(
        "a fixed changes its size",
        '{"type":"fixed","name":"F","size":4}',
        '{"type":"fixed","name":"F","size":8}',
        False,
        False,
    ),
    Case(
        "a fixed changes its name",
        '{"type":"fixed","name":"F","size":4}',
        '{"type":"fixed","name":"G","size":4}',
        False,
        False,
    ),
    Case("items widen", '{"type":"array","items":"int"}', '{"type":"array","items":"long"}', True, False),
    Case("values widen", '{"type":"map","values":"int"}', '{"type":"map","values":"double"}', True, False),
    Case("an array becomes a map", '{"type":"array","items":"int"}', '{"type":"map","values":"int"}', False, False),
    Case("a record changes its name", record(A), record(A, name="S"), False, False),
    Case(
        "a record changes its name and keeps the old one as alias",
        record(A),
        '{"type":"record","name":"S","aliases":["R"],"fields":[{"name":"a","type":"int"}]}',
        True,
        False,
    ),
    Case(
        "a field changes its name and keeps the old one as alias",
        record(A),
        record('{"name":"c","aliases":["a"],"type":"int"}'),
        True,
        False,
    ),
    Case("a field changes its name", record(A), record('{"name":"c","type":"int"}'), False, False),
    Case("a decimal gets more digits", decimal(4, 2), decimal(8, 2), True, True),
    Case("a decimal changes its scale", decimal(8, 2), decimal(8, 3), False, False),
    Case("a fixed decimal changes its scale", fixed_decimal(2), fixed_decimal(4), False, False),
    Case(
        "a decimal in a field changes its scale",
        record(f'{{"name":"a","type":{decimal(8, 2)}}}'),
        record(f'{{"name":"a","type":{decimal(8, 1)}}}'),
        False,
        False,
    ),
    Case("bytes become a decimal", '"bytes"', decimal(4, 2), True, True),
    Case(
        "a list keeps its shape",
        '{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"],"default":null}]}',
        '{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"],"default":null},{"name":"v","type":"int","default":0}]}',
        True,
        True,
    ),
    Case(
        "a list gets a value without a default",
        '{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"],"default":null}]}',
        '{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"],"default":null},{"name":"v","type":"int"}]}',
        False,
        True,
    ),
]

OPEN = '{"type":"object","properties":{"a":{"type":"integer"}}}'
CLOSED = '{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false}'
OPEN_AB = '{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}}}'
CLOSED_AB = '{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"additionalProperties":false}'
CLOSED_AB_REQUIRED = CLOSED_AB[:-1] + ',"required":["b"]}'
CLOSED_B_DEFAULT = CLOSED_AB_REQUIRED.replace('{"type":"string"}', '{"type":"string","default":""}')
REST_STRINGS = '{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}}'

JSON_CASES = [
    Case("the same schema", OPEN, OPEN, True, True),
    Case("anything becomes an object", "{}", OPEN, False, True),
    Case("an object becomes anything", OPEN, "{}", True, False),
    Case("nothing becomes something", "false", OPEN, True, False),
    Case("a property comes to an open object", OPEN, OPEN_AB, False, True),
    Case("a property comes to a closed object", CLOSED, CLOSED_AB, True, False),
    Case("a required property comes to a closed object", CLOSED, CLOSED_AB_REQUIRED, False, False),
    Case("a required property with a default comes", CLOSED, CLOSED_B_DEFAULT, True, False),
    Case("a property becomes required", CLOSED_AB, CLOSED_AB_REQUIRED, False, True),
    Case("an object closes", OPEN, CLOSED, False, True),
    Case("an object opens", CLOSED, OPEN, True, False),
    Case("the rest must be strings", OPEN, REST_STRINGS, False, True),
    Case(
        "a property that the rest covers",
        REST_STRINGS,
        '{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"additionalProperties":{"type":"string"}}',
        True,
        True,
    ),
    Case(
        "a property that the rest does not cover",
        REST_STRINGS,
        '{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"additionalProperties":{"type":"string"}}',
        False,
        False,
    ),
    Case("integer becomes number", '{"type":"integer"}', '{"type":"number"}', True, False),
    Case("string becomes number", '{"type":"string"}', '{"type":"number"}', False, False),
    Case("one type becomes two", '{"type":"string"}', '{"type":["string","null"]}', True, False),
    Case("three types become two", '{"type":["string","null","integer"]}', '{"type":["string","null"]}', False, True),
    Case("maxLength comes", '{"type":"string"}', '{"type":"string","maxLength":5}', False, True),
    Case("maxLength grows", '{"type":"string","maxLength":5}', '{"type":"string","maxLength":9}', True, False),
    Case("minLength grows", '{"type":"string","minLength":1}', '{"type":"string","minLength":2}', False, True),
    Case("a pattern changes", '{"type":"string","pattern":"a"}', '{"type":"string","pattern":"b"}', False, False),
    Case("maximum grows", '{"type":"number","maximum":5}', '{"type":"number","maximum":5.5}', True, False),
    Case("exclusiveMinimum goes", '{"type":"number","exclusiveMinimum":0}', '{"type":"number"}', True, False),
    Case("multipleOf doubles", '{"type":"number","multipleOf":2}', '{"type":"number","multipleOf":4}', False, True),
    Case(
        "multipleOf becomes unrelated",
        '{"type":"number","multipleOf":2}',
        '{"type":"number","multipleOf":3}',
        False,
        False,
    ),
    Case("an enum grows", '{"enum":["x"]}', '{"enum":["x","y"]}', True, False),
    Case("an enum changes", '{"enum":["x"]}', '{"enum":["y"]}', False, False),
    Case("an enum of true is none of 1", '{"enum":[true]}', '{"enum":[1]}', False, False),
    Case("a const changes", '{"const":1}', '{"const":2}', False, False),
    Case(
        "a oneOf grows",
        '{"oneOf":[{"type":"string"}]}',
        '{"oneOf":[{"type":"string"},{"type":"integer"}]}',
        True,
        False,
    ),
    Case(
        "alternatives find their places",
        '{"oneOf":[{"type":"integer"},{"type":"number"}]}',
        '{"oneOf":[{"type":"number"},{"type":"integer"}]}',
        True,
        True,
    ),
    Case(
        "an allOf grows", '{"allOf":[{"type":"string"}]}', '{"allOf":[{"type":"string"},{"maxLength":5}]}', False, True
    ),
    Case(
        "oneOf becomes anyOf",
        '{"oneOf":[{"type":"string"},{"type":"null"}]}',
        '{"anyOf":[{"type":"string"},{"type":"null"}]}',
        True,
        False,
    ),
    Case("what is excluded widens", '{"not":{"type":"integer"}}', '{"not":{"type":"number"}}', False, True),
    Case(
        "items widen",
        '{"type":"array","items":{"type":"integer"}}',
        '{"type":"array","items":{"type":"number"}}',
        True,
        False,
    ),
    Case("uniqueItems comes", '{"type":"array"}', '{"type":"array","uniqueItems":true}', False, True),
    Case("maxItems shrinks", '{"type":"array","maxItems":9}', '{"type":"array","maxItems":5}', False, True),
    Case(
        "a place comes to an open tuple",
        '{"type":"array","items":[{"type":"string"}]}',
        '{"type":"array","items":[{"type":"string"},{"type":"string"}]}',
        False,
        True,
    ),
    Case(
        "a place comes to a closed tuple",
        '{"type":"array","items":[{"type":"string"}],"additionalItems":false}',
        '{"type":"array","items":[{"type":"string"},{"type":"string"}],"additionalItems":false}',
        True,
        False,
    ),
    Case("a title changes", '{"type":"string","title":"x"}', '{"type":"string","title":"y"}', True, True),
    Case("a dependency comes", '{"type":"object"}', '{"type":"object","dependencies":{"a":["b"]}}', False, True),
    Case(
        "a definition is used by name",
        '{"definitions":{"x":{"type":"integer"}},"$ref":"#/definitions/x"}',
        '{"type":"number"}',
        True,
        False,
    ),
    Case(
        "a tree keeps its shape",
        '{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#"}}},"additionalProperties":false}',
        '{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#"}},"v":{"type":"string"}},"additionalProperties":false}',
        True,
        False,
    ),
]


def proto(body: str, syntax: str = "proto3", package: str = "p") -> str:
    return f'syntax = "{syntax}"; package {package}; {body}'


def message(body: str) -> str:
    return proto(f"message M {{ {body} }}")


PROTOBUF_CASES = [
    Case("the same schema", message("string a = 1;"), message("string a = 1;"), True, True),
    Case("a field comes", message("string a = 1;"), message("string a = 1; int32 b = 2;"), True, True),
    Case("a field changes its name", message("string a = 1;"), message("string z = 1;"), True, True),
    Case("a field changes its number", message("string a = 1;"), message("string a = 2;"), True, True),
    Case("int32 becomes int64", message("int32 a = 1;"), message("int64 a = 1;"), True, True),
    Case("int32 becomes bool", message("int32 a = 1;"), message("bool a = 1;"), True, True),
    Case("int32 becomes sint32", message("int32 a = 1;"), message("sint32 a = 1;"), False, False),
    Case("string becomes bytes", message("string a = 1;"), message("bytes a = 1;"), True, True),
    Case("string becomes int32", message("string a = 1;"), message("int32 a = 1;"), False, False),
    Case("fixed32 becomes sfixed32", message("fixed32 a = 1;"), message("sfixed32 a = 1;"), True, True),
    Case("fixed32 becomes fixed64", message("fixed32 a = 1;"), message("fixed64 a = 1;"), False, False),
    Case("float becomes double", message("float a = 1;"), message("double a = 1;"), False, False),
    Case("a number becomes repeated", message("int32 a = 1;"), message("repeated int32 a = 1;"), False, False),
    Case("a string becomes repeated", message("string a = 1;"), message("repeated string a = 1;"), True, True),
    Case("a field becomes optional", message("int32 a = 1;"), message("optional int32 a = 1;"), True, True),
    Case("the package changes", proto("message M {}"), proto("message M {}", package="q"), False, False),
    Case("a message comes", proto("message M {}"), proto("message M {} message N {}"), True, False),
    Case("messages change places", proto("message M {} message N {}"), proto("message N {} message M {}"), True, True),
    Case("a nested message goes", message("message I {}"), message("string a = 1;"), False, True),
    Case(
        "a scalar becomes a message",
        message("string a = 1;"),
        proto("message M { N a = 1; } message N {}"),
        False,
        False,
    ),
    Case(
        "another message in a field",
        proto("message M { N a = 1; } message N {} message O {}"),
        proto("message M { O a = 1; } message N {} message O {}"),
        False,
        False,
    ),
    Case(
        "a message in a field grows",
        proto("message M { N a = 1; } message N {}"),
        proto("message M { N a = 1; } message N { string b = 1; }"),
        True,
        True,
    ),
    Case(
        "a message in a field changes a type",
        proto("message M { N a = 1; } message N { string b = 1; }"),
        proto("message M { N a = 1; } message N { int32 b = 1; }"),
        False,
        False,
    ),
    Case(
        "an enum becomes a number",
        proto("message M { E a = 1; } enum E { X = 0; }"),
        proto("message M { int32 a = 1; } enum E { X = 0; }"),
        True,
        True,
    ),
    Case("an enum grows", proto("enum E { X = 0; }"), proto("enum E { X = 0; Y = 1; }"), True, True),
    Case("an enum's value changes its name", proto("enum E { X = 0; }"), proto("enum E { Z = 0; }"), True, True),
    Case("an enum goes", proto("message M {} enum E { X = 0; }"), proto("message M {}"), True, True),
    Case(
        "a map changes its values",
        message("map<string, int32> a = 1;"),
        message("map<string, int64> a = 1;"),
        True,
        True,
    ),
    Case(
        "a map changes its values for good",
        message("map<string, int32> a = 1;"),
        message("map<string, string> a = 1;"),
        False,
        False,
    ),
    Case(
        "a map becomes a message",
        message("map<string, int32> a = 1;"),
        proto("message M { N a = 1; } message N {}"),
        False,
        False,
    ),
    Case(
        "a oneof comes with new fields",
        message("string a = 1;"),
        message("string a = 1; oneof o { string b = 2; }"),
        True,
        True,
    ),
    Case(
        "one field moves into a new oneof",
        message("string a = 1;"),
        message("oneof o { string a = 1; string b = 2; }"),
        True,
        False,
    ),
    Case(
        "two fields move into a oneof",
        message("string a = 1; string b = 2;"),
        message("oneof o { string a = 1; string b = 2; }"),
        False,
        True,
    ),
    Case(
        "a oneof loses a field",
        message("oneof o { string a = 1; string b = 2; }"),
        message("oneof o { string a = 1; }"),
        False,
        True,
    ),
    Case(
        "a oneof gets a field",
        message("oneof o { string a = 1; }"),
        message("oneof o { string a = 1; string b = 2; }"),
        True,
        False,
    ),
    Case(
        "a required field comes",
        proto("message M {}", "proto2"),
        proto("message M { required int32 a = 1; }", "proto2"),
        False,
        False,
    ),
    Case(
        "an optional field comes",
        proto("message M {}", "proto2"),
        proto("message M { optional int32 a = 1; }", "proto2"),
        True,
        True,
    ),
    Case(
        "a number becomes required",
        proto("message M { optional int32 a = 1; }", "proto2"),
        proto("message M { required int32 a = 1; }", "proto2"),
        False,
        False,
    ),
    Case(
        "a tree keeps its shape",
        message("repeated M kids = 1;"),
        message("repeated M kids = 1; string v = 2;"),
        True,
        True,
    ),
]
