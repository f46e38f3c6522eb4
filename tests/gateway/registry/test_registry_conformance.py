"""The registry's responses for deleted, missing and imported schemas, which are those of Confluent's."""

from __future__ import annotations

import json
import uuid
from importlib import import_module
from typing import Any

import httpx
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from penstock.gateway.registry.formats.proto_files import well_known
from penstock.gateway.registry.formats.proto_format import ProtobufSchema


def problem(response: httpx.Response, status: int, code: int) -> str:
    body = response.json()
    assert (response.status_code, body["error_code"]) == (status, code), body
    return str(body["message"])


def schema() -> str:
    """A schema that no other test uses."""
    return json.dumps({"type": "record", "name": f"R{uuid.uuid4().hex[:10]}", "fields": []})


def register(registry: httpx.Client, subject: str, text: str, **more: Any) -> int:
    answer = registry.post(f"/subjects/{subject}/versions", json={"schema": text, **more})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])


def test_an_id_whose_versions_are_deleted_is_in_no_subject(registry: httpx.Client, subject: str) -> None:
    schema_id = register(registry, subject, schema())
    registry.delete(f"/subjects/{subject}")
    path, everything = f"/schemas/ids/{schema_id}", {"deleted": "true"}
    assert registry.get(f"{path}/subjects").json() == []
    assert registry.get(f"{path}/versions").json() == []
    assert registry.get(f"{path}/subjects", params=everything).json() == [subject]
    assert registry.get(f"{path}/versions", params=everything).json() == [{"subject": subject, "version": 1}]
    registry.delete(f"/subjects/{subject}", params={"permanent": "true"})
    for tail in ("", "/subjects", "/versions"):
        problem(registry.get(f"{path}{tail}", params=everything), 404, 40403)


def test_a_compatibility_check_with_a_missing_version(registry: httpx.Client, subject: str) -> None:
    body = {"schema": schema()}
    problem(registry.post(f"/compatibility/subjects/{subject}/versions/1", json=body), 404, 40402)
    assert registry.post(f"/compatibility/subjects/{subject}/versions/latest", json=body).json() == {
        "is_compatible": True
    }
    register(registry, subject, schema())
    registry.delete(f"/subjects/{subject}")
    problem(registry.post(f"/compatibility/subjects/{subject}/versions/1", json=body), 404, 40402)


def test_deleting_versions_of_a_deleted_subject(registry: httpx.Client, subject: str) -> None:
    register(registry, subject, schema())
    registry.delete(f"/subjects/{subject}")
    problem(registry.delete(f"/subjects/{subject}/versions/1"), 404, 40406)
    problem(registry.delete(f"/subjects/{subject}/versions/2"), 404, 40402)
    problem(registry.delete(f"/subjects/{subject}-never/versions/1"), 404, 40401)


def test_referrers_of_a_deleted_version(registry: httpx.Client, subject: str) -> None:
    name = f"R{uuid.uuid4().hex[:10]}"
    register(registry, subject, json.dumps({"type": "record", "name": name, "fields": []}))
    text = json.dumps({"type": "array", "items": name})
    references = [{"name": name, "subject": subject, "version": 1}]
    referrer = register(registry, f"{subject}-referrer", text, references=references)
    path = f"/subjects/{subject}/versions/1/referencedby"
    assert registry.get(path).json() == [referrer]
    registry.delete(f"/subjects/{subject}-referrer")
    registry.delete(f"/subjects/{subject}")
    assert registry.get(path).json() == []
    assert registry.get(path, params={"deleted": "true"}).json() == [referrer]


def test_schemas_with_confluents_annotations_and_types(registry: httpx.Client, subject: str) -> None:
    text = """syntax = "proto3";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "confluent/type/variant.proto";
import "google/type/money.proto";
message Order {
  confluent.type.Decimal total = 1 [(confluent.field_meta) = {doc: "with tax", tags: "PII"}];
  google.type.Money paid = 2;
  confluent.type.Variant more = 3;
}
"""
    schema_id = register(registry, subject, text, schemaType="PROTOBUF")
    stored = registry.get(f"/schemas/ids/{schema_id}").json()["schema"]
    assert "confluent.field_meta" in stored
    assert "google.type.Money paid = 2;" in stored


@pytest.mark.parametrize("name", ["meta", "type/decimal", "type/variant"])
def test_bundled_protos_equal_those_of_confluents_client(name: str) -> None:
    module = f"confluent_kafka.schema_registry.confluent.{name.replace('/', '.')}_pb2"
    theirs = FileDescriptorProto.FromString(import_module(module).DESCRIPTOR.serialized_pb)
    ours = well_known(f"confluent/{name}.proto")
    assert ours is not None
    resolved = FileDescriptorProto()
    pool_file = ProtobufSchema(f'syntax = "proto3"; import "confluent/{name}.proto"; message M {{}}').descriptor
    pool_file.dependencies[0].CopyToProto(resolved)
    for each in (theirs, resolved):
        each.ClearField("options")
        each.ClearField("name")
    assert resolved == theirs
