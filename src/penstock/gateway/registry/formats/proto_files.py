"""Files that every .proto may import without a reference: protobuf's own, and Confluent's annotations."""

from __future__ import annotations

import importlib

from google.protobuf.descriptor_pb2 import FileDescriptorProto

ROOTS = {
    "google/protobuf/": "google.protobuf",
    "google/type/": "google.type",
    "confluent/type/": "confluent_kafka.schema_registry.confluent.types",
    "confluent/": "confluent_kafka.schema_registry.confluent",
}


def well_known(name: str) -> FileDescriptorProto | None:
    """The descriptor of a file that comes with protobuf; None for any other."""
    for start, package in ROOTS.items():
        stem = name.removeprefix(start).removesuffix(".proto")
        if name.startswith(start) and name.endswith(".proto") and stem.isidentifier():
            try:
                module = importlib.import_module(f"{package}.{stem}_pb2")
            except ImportError:
                return None
            return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    return None
