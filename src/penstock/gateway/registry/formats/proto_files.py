"""Files that every .proto may import without a reference: protobuf's own, Google's common types, and Confluent's."""

from __future__ import annotations

import importlib
from functools import lru_cache

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from penstock.gateway.registry.formats.proto_parser import parse_proto

ROOTS = {"google/protobuf/": "google.protobuf", "google/type/": "google.type"}
# Confluent publishes these only with its clients, whose dependencies the gateway does not need.
TEXTS = {
    "confluent/meta.proto": """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule {
  string name = 1;
  string doc = 2;
  string expr = 3;
  string sql = 4;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """
syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
""",
    "confluent/type/variant.proto": """
syntax = "proto3";
package confluent.type;
message Variant {
  bytes metadata = 1;
  bytes value = 2;
}
""",
}


@lru_cache
def _parsed(name: str) -> FileDescriptorProto:
    return parse_proto(TEXTS[name], name)


def well_known(name: str) -> FileDescriptorProto | None:
    """The descriptor of a file that needs no reference; None for any other."""
    if name in TEXTS:
        return _parsed(name)
    for start, package in ROOTS.items():
        stem = name.removeprefix(start).removesuffix(".proto")
        if name.startswith(start) and name.endswith(".proto") and stem.isidentifier():
            try:
                module = importlib.import_module(f"{package}.{stem}_pb2")
            except ImportError:
                return None
            return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    return None
